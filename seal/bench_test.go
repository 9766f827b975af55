package seal

import (
	"fmt"
	"testing"

	"github.com/tink-crypto/tink-go/v2/aead"
)

// BenchmarkSealOpen measures a state sealed and opened against Tink alone on
// the same bytes, in one run. A state is text, so Tink is measured with strict
// base64 around it too: most of what sealing costs beyond Tink is that.
//
//	go test -run '^$' -bench SealOpen -benchmem ./seal
func BenchmarkSealOpen(b *testing.B) {
	k := newTestKeyset(b)
	bare, err := aead.New(k.handle)
	if err != nil {
		b.Fatal(err)
	}
	for _, journal := range []int{0, 1 << 10, 8 << 10} {
		c := testClaims()
		c.Journal = make([]byte, journal)
		s := newTestSealer(b, k, audience)
		plain := c.encode()
		b.Run(fmt.Sprintf("journal=%d/tink", journal), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sealed, err := bare.Encrypt(plain, s.associated)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := bare.Decrypt(sealed, s.associated); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("journal=%d/tink+base64", journal), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sealed, err := bare.Encrypt(plain, s.associated)
				if err != nil {
					b.Fatal(err)
				}
				if sealed, err = strict.DecodeString(strict.EncodeToString(sealed)); err != nil {
					b.Fatal(err)
				}
				if _, err := bare.Decrypt(sealed, s.associated); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("journal=%d/seal", journal), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				state, err := s.Seal(c)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Open(state); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
