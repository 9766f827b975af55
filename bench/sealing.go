package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/tallystick/tallystick/seal"
)

// sealing seals and opens the state of a kept call, and has Tink alone do the
// same with the same bytes.
func sealing(b *bench) ([]row, error) {
	keys, err := seal.NewKeyset()
	if err != nil {
		return nil, err
	}
	audience := seal.Audience("bench", "")
	sealer, err := seal.NewSealer(keys.AEAD(), audience)
	if err != nil {
		return nil, err
	}
	digest := strings.Repeat("d", 43)
	now := time.UnixMilli(time.Now().UnixMilli()).UTC()
	claims := seal.Claims{
		Principal: digest, Client: "bench", Action: digest, Call: strings.Repeat("c", 26), Round: 1,
		Issued: now, Expires: now.Add(15 * time.Minute), Deadline: now.Add(24 * time.Hour),
	}
	h, err := keyset.NewHandle(aead.XAES256GCM192BitNonceKeyTemplate())
	if err != nil {
		return nil, err
	}
	tink, err := aead.New(h)
	if err != nil {
		return nil, err
	}
	associated := []byte("tallystick sealed state 1\x00" + audience)
	plain, err := plainLike(sealer, claims, func(p []byte) ([]byte, error) { return tink.Encrypt(p, associated) })
	if err != nil {
		return nil, err
	}
	own := func() (time.Duration, error) { return ownCPU(), nil }
	s, err := b.turns(contender{"seal", again(func() error {
		state, err := sealer.Seal(claims)
		if err != nil {
			return err
		}
		back, err := sealer.Open(state)
		if err == nil && back.Call != claims.Call {
			err = errors.New("another call came back")
		}
		return err
	}), own}, contender{"tink", again(func() error {
		sealed, err := tink.Encrypt(plain, associated)
		if err != nil {
			return err
		}
		back, err := tink.Decrypt(sealed, associated)
		if err == nil && len(back) != len(plain) {
			err = errors.New("other bytes came back")
		}
		return err
	}), own})
	if err != nil {
		return nil, err
	}
	r := versus(fmt.Sprintf("seal and open of a kept call's state (%d bytes), against Tink; ratio of times", len(plain)), "≤ 1.3", s[0], s[1])
	r.ratio = fmt.Sprintf("%.2f", s[1].against(s[0]))
	return []row{r}, nil
}

// plainLike returns as many bytes as are encrypted in a state of the claims.
func plainLike(s *seal.Sealer, c seal.Claims, encrypt func([]byte) ([]byte, error)) ([]byte, error) {
	state, err := s.Seal(c)
	if err != nil {
		return nil, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(state[strings.IndexByte(state, '.')+1:])
	if err != nil {
		return nil, err
	}
	nothing, err := encrypt(nil)
	if err != nil {
		return nil, err
	}
	return make([]byte, len(sealed)-len(nothing)), nil
}

// again does one thing for a while.
func again(one func() error) func(time.Duration) (int, error) {
	return func(length time.Duration) (int, error) {
		for end, n := time.Now().Add(length), 0; ; n++ {
			if n%64 == 0 && !time.Now().Before(end) {
				return n, nil
			}
			if err := one(); err != nil {
				return 0, err
			}
		}
	}
}
