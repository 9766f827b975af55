package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

func readGolden(f testing.TB) (golden, *Keyset) {
	raw, err := os.ReadFile(goldenFile)
	if err != nil {
		f.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		f.Fatal(err)
	}
	k, err := ReadKeyset(bytes.NewReader(g.Keyset))
	if err != nil {
		f.Fatal(err)
	}
	return g, k
}

// FuzzOpen tries states, and what is in them as if the key were known.
func FuzzOpen(f *testing.F) {
	g, k := readGolden(f)
	known := map[string]bool{}
	for _, state := range g.Open {
		known[state.State] = true
		f.Add(state.State, state.Claims.encode())
	}
	for _, state := range g.Refuse {
		f.Add(state.State, []byte(state.State))
	}
	s := newTestSealer(f, k, audience)
	f.Fuzz(func(t *testing.T, state string, plain []byte) {
		if _, err := s.Open(state); err == nil {
			if !known[state] {
				t.Fatalf("%q opens", state)
			}
		} else if !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q: %v", state, err)
		}
		if c, err := decodeClaims(plain); err == nil && !bytes.Equal(c.encode(), plain) {
			t.Fatalf("%q is a second encoding of %+v", plain, c)
		}
	})
}

func FuzzReadKeyset(f *testing.F) {
	g, k := readGolden(f)
	f.Add([]byte(g.Keyset))
	var b bytes.Buffer
	if err := k.Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	b.Reset()
	if err := k.WriteEncrypted(&b, k.AEAD()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	for _, seed := range []string{"", "{}", "null", `{"primaryKeyId":1,"key":[{"keyData":{},"status":"ENABLED","keyId":1,"outputPrefixType":"TINK"}]}`,
		`{"primaryKeyId":1,"key":[null]}`, `{"encryptedKeyset":"AAAA","keysetInfo":{}}`, strings.Repeat("[", 1000)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = ReadEncryptedKeyset(bytes.NewReader(raw), k.AEAD())
		read, err := ReadKeyset(bytes.NewReader(raw))
		if err != nil {
			return
		}
		// What is read works, and survives being written.
		other := copyKeyset(t, read)
		state := mustSeal(t, newTestSealer(t, read, audience), testClaims())
		if _, err := newTestSealer(t, other, audience).Open(state); err != nil {
			t.Fatal(err)
		}
		if _, err := read.Add(); err != nil {
			t.Fatal(err)
		}
	})
}
