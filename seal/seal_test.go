package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const audience = `"orders" "production"`

func newTestKeyset(t testing.TB) *Keyset {
	t.Helper()
	k, err := NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newTestSealer(t testing.TB, k *Keyset, audience string) *Sealer {
	t.Helper()
	s, err := NewSealer(k.AEAD(), audience)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSeal(t testing.TB, s *Sealer, c Claims) string {
	t.Helper()
	state, err := s.Seal(c)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// wantInvalid fails unless the state is refused the one way there is.
func wantInvalid(t testing.TB, s *Sealer, state, why string) {
	t.Helper()
	c, err := s.Open(state)
	if !errors.Is(err, ErrInvalid) || !reflect.DeepEqual(c, Claims{}) {
		t.Errorf("%s: opened to %+v, %v", why, c, err)
		return
	}
	if len(state) > 12 && (strings.Contains(err.Error(), state) || strings.Contains(err.Error(), state[4:12])) {
		t.Errorf("%s: the error holds the state: %v", why, err)
	}
}

func testClaims() Claims {
	at := time.Date(2026, 7, 28, 12, 0, 0, 123e6, time.UTC)
	return Claims{
		Principal: "b0e5b6e5f0c5d0f7a6a1d4b93b3a3e2c9d0b9d6b5a1c8e7f6a5b4c3d2e1f0a9b",
		Client:    "inspector", Action: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		Call: "c_5Zr4wM3yS0mXy1v1jQ2x9A", Round: 2,
		Issued: at, Expires: at.Add(15 * time.Minute), Deadline: at.Add(24 * time.Hour),
	}
}

func TestOpenGivesWhatWasSealed(t *testing.T) {
	s := newTestSealer(t, newTestKeyset(t), audience)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Just(""), rapid.StringN(100, 200, -1))
		when := rapid.Custom(func(t *rapid.T) time.Time {
			return time.UnixMilli(rapid.OneOf(rapid.Int64Range(-62135596800000, 253402300799999), rapid.Just(int64(-62135596800000))).Draw(t, "ms")).UTC()
		})
		c := Claims{
			Principal: text.Draw(t, "principal"), Client: text.Draw(t, "client"), Action: text.Draw(t, "action"), Call: text.Draw(t, "call"),
			Round:  rapid.IntRange(0, math.MaxInt32).Draw(t, "round"),
			Issued: when.Draw(t, "issued"), Expires: when.Draw(t, "expires"), Deadline: when.Draw(t, "deadline"),
			Journal: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "journal"),
		}
		if len(c.Journal) == 0 {
			c.Journal = nil
		}
		state, err := s.Seal(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Open(state)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("sealed %+v, opened %+v, %v", c, got, err)
		}
		if strings.Trim(state, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Fatalf("%q is not URL-safe", state)
		}
	})
}

func TestTimesAreCutToTheMillisecondInUTC(t *testing.T) {
	s := newTestSealer(t, newTestKeyset(t), audience)
	c := testClaims()
	c.Expires = c.Expires.Add(999999).In(time.FixedZone("east", 3600))
	got, err := s.Open(mustSeal(t, s, c))
	if err != nil || got.Expires != testClaims().Expires {
		t.Errorf("expires %v, %v", got.Expires, err)
	}
	if c.Deadline = (time.Time{}); true {
		got, err = s.Open(mustSeal(t, s, c))
		if err != nil || !got.Deadline.IsZero() {
			t.Errorf("the zero time came back as %v, %v", got.Deadline, err)
		}
	}
}

func TestClaimsOutOfRangeAreNotSealed(t *testing.T) {
	s := newTestSealer(t, newTestKeyset(t), audience)
	for why, change := range map[string]func(*Claims){
		"negative round": func(c *Claims) { c.Round = -1 },
		"large round":    func(c *Claims) { c.Round = math.MaxInt32 + 1 },
		"year 0":         func(c *Claims) { c.Issued = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) },
		"year 10000":     func(c *Claims) { c.Expires = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"year 1e9":       func(c *Claims) { c.Deadline = time.Date(1e9, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		c := testClaims()
		change(&c)
		if state, err := s.Seal(c); err == nil || state != "" {
			t.Errorf("%s: sealed", why)
		}
	}
}

func TestExpiredAndPastDeadlineAtTheInstant(t *testing.T) {
	c := testClaims()
	for _, test := range []struct {
		now           time.Time
		expired, past bool
	}{
		{c.Issued, false, false},
		{c.Expires.Add(-time.Nanosecond), false, false},
		{c.Expires, true, false},
		{c.Deadline.Add(-time.Nanosecond), true, false},
		{c.Deadline, true, true},
	} {
		if c.Expired(test.now) != test.expired || c.PastDeadline(test.now) != test.past {
			t.Errorf("at %v: expired %t, past deadline %t", test.now, c.Expired(test.now), c.PastDeadline(test.now))
		}
	}
	if none := (Claims{}); !none.Expired(time.Unix(0, 0)) || !none.PastDeadline(time.Unix(0, 0)) {
		t.Error("claims without times are good for ever")
	}
}

func TestOtherAudienceDoesNotOpen(t *testing.T) {
	k := newTestKeyset(t)
	state := mustSeal(t, newTestSealer(t, k, audience), testClaims())
	for _, other := range []string{"x", audience + "x", audience + "\x00", "\x00" + audience, audience[1:], `"orders" "staging"`, "ORDERS"} {
		wantInvalid(t, newTestSealer(t, k, other), state, other)
	}
	if _, err := newTestSealer(t, k, audience).Open(state); err != nil {
		t.Errorf("the same audience: %v", err)
	}
}

func TestAudiencesOfDifferentPairsDiffer(t *testing.T) {
	if got := Audience("orders", "production"); got != audience {
		t.Errorf("the audience is %s, so that states of earlier versions do not open", got)
	}
	seen := map[string]string{}
	parts := []string{"", "a", "a b", `a" "b`, `"`, `\`, `\"`, " ", "a\x00b", "\xff", "\ufffd"}
	for _, x := range parts {
		for _, y := range parts {
			a := Audience(x, y)
			if other, ok := seen[a]; ok {
				t.Errorf("%q, %q and %s are one audience", x, y, other)
			}
			seen[a] = fmt.Sprintf("%q, %q", x, y)
		}
	}
}

func TestSealerNeedsKeyAndAudience(t *testing.T) {
	if _, err := NewSealer(nil, audience); err == nil {
		t.Error("no AEAD is accepted")
	}
	if _, err := NewSealer(newTestKeyset(t).AEAD(), ""); err == nil {
		t.Error("no audience is accepted")
	}
}

func TestAnyChangedByteIsRefused(t *testing.T) {
	k := newTestKeyset(t)
	s := newTestSealer(t, k, audience)
	state := mustSeal(t, s, testClaims())
	sealed, err := base64.RawURLEncoding.DecodeString(state[len(prefix):])
	if err != nil {
		t.Fatal(err)
	}
	for i := range sealed {
		for _, mask := range []byte{1, 0x80, 0xff} {
			other := bytes.Clone(sealed)
			other[i] ^= mask
			wantInvalid(t, s, prefix+base64.RawURLEncoding.EncodeToString(other), fmt.Sprintf("byte %d", i))
		}
	}
	for i := range state {
		for _, c := range []byte("A-_.=+/ \n\x00\xff") {
			if other := state[:i] + string([]byte{c}) + state[i+1:]; other != state {
				wantInvalid(t, s, other, fmt.Sprintf("character %d as %q", i, c))
			}
		}
		wantInvalid(t, s, state[:i], fmt.Sprintf("cut at %d", i))
		wantInvalid(t, s, state[i+1:], fmt.Sprintf("from %d", i+1))
		wantInvalid(t, s, state[:i]+state[i+1:], fmt.Sprintf("without %d", i))
	}
	for _, suffix := range []string{"-TAMPERED", "A", "AA", "AAAA", "=", ".", "\x00", " ", "\n", "\r\n", "." + state, state} {
		wantInvalid(t, s, state+suffix, fmt.Sprintf("with %.12q at the end", suffix))
	}
}

// Of each payload length, so that one, two or no characters of padding and
// four, two or no bits are left over.
func TestOneAcceptedTextPerState(t *testing.T) {
	s := newTestSealer(t, newTestKeyset(t), audience)
	for extra := range 3 {
		c := testClaims()
		c.Journal = make([]byte, 1+extra)
		state := mustSeal(t, s, c)
		for !strings.ContainsAny(state, "-") || !strings.ContainsAny(state[len(prefix):], "_") {
			state = mustSeal(t, s, c)
		}
		if _, err := s.Open(state); err != nil {
			t.Fatal(err)
		}
		body := state[len(prefix):]
		raw, _ := base64.RawURLEncoding.DecodeString(body)
		variants := map[string]string{
			"standard alphabet":     prefix + base64.RawStdEncoding.EncodeToString(raw),
			"standard and padding":  prefix + base64.StdEncoding.EncodeToString(raw),
			"one padding":           state + "=",
			"two paddings":          state + "==",
			"newline at the end":    state + "\n",
			"return at the end":     state + "\r",
			"newline at the start":  "\n" + state,
			"newline in the prefix": prefix + "\n" + body,
			"newline inside":        state[:20] + "\n" + state[20:],
			"return inside":         state[:20] + "\r\n" + state[20:],
			"space inside":          state[:20] + " " + state[20:],
			"no prefix":             body,
			"prefix twice":          prefix + state,
			"upper-case prefix":     strings.ToUpper(prefix) + body,
			"other version":         "ts2." + body,
			"quoted":                `"` + state + `"`,
		}
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		for _, c := range alphabet {
			if other := state[:len(state)-1] + string(c); other != state {
				variants["ending in "+string(c)] = other
			}
		}
		for why, other := range variants {
			wantInvalid(t, s, other, why)
		}
	}
}

// The key id is outside of what the AEAD protects; it must not lead anywhere.
// case S03
func TestSubstitutedKeyIDIsRefused(t *testing.T) {
	k := newTestKeyset(t)
	s := newTestSealer(t, k, audience)
	state := mustSeal(t, s, testClaims())
	other, err := k.Add()
	if err != nil {
		t.Fatal(err)
	}
	sealed, _ := base64.RawURLEncoding.DecodeString(state[len(prefix):])
	if id := binary.BigEndian.Uint32(sealed[1:5]); id != k.List()[0].ID {
		t.Fatalf("the state names key %d, not the primary", id)
	}
	for _, id := range []uint32{other, 0, math.MaxUint32, k.List()[0].ID + 1} {
		binary.BigEndian.PutUint32(sealed[1:5], id)
		wantInvalid(t, s, prefix+base64.RawURLEncoding.EncodeToString(sealed), fmt.Sprint("key ", id))
	}
	wantInvalid(t, s, prefix+base64.RawURLEncoding.EncodeToString(sealed[5:]), "no key id")
}

// Whoever has the key may still not write claims another way.
func TestClaimsInAnotherEncodingAreRefused(t *testing.T) {
	k := newTestKeyset(t)
	s := newTestSealer(t, k, audience)
	c := testClaims()
	c.Principal = "p"
	plain := c.encode()
	long := append([]byte{0x81, 0x00}, plain[1:]...) // the length 1 in two bytes
	for why, b := range map[string][]byte{
		"nothing": {}, "cut": plain[:len(plain)-1], "more": append(bytes.Clone(plain), 0), "long length": long,
		"length past the end": {200}, "huge length": bytes.Repeat([]byte{0xff}, 9), "overlong": bytes.Repeat([]byte{0xff}, 20),
		"huge round": append(bytes.Repeat([]byte{0}, 4), 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0),
		"huge time":  append(bytes.Repeat([]byte{0}, 5), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0),
	} {
		sealed, err := s.aead.Encrypt(b, s.associated)
		if err != nil {
			t.Fatal(err)
		}
		wantInvalid(t, s, prefix+base64.RawURLEncoding.EncodeToString(sealed), why)
	}
}

func TestStateLimit(t *testing.T) {
	s := newTestSealer(t, newTestKeyset(t), audience)
	c := testClaims()
	c.Journal = make([]byte, 16<<10)
	_, err := s.Seal(c)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "state 16 KiB") {
		t.Errorf("over the limit: %v", err)
	}

	large := s.WithLimit(32 << 10)
	state := mustSeal(t, large, c)
	wantInvalid(t, s, state, "over the limit of who opens it")
	if _, err := large.Open(state); err != nil {
		t.Errorf("within its own limit: %v", err)
	}

	exact := s.WithLimit(len(state))
	if _, err := exact.Open(mustSeal(t, exact, c)); err != nil {
		t.Errorf("exactly the limit: %v", err)
	}
	_, err = s.WithLimit(len(state) - 1).Seal(c)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprintf("state %d bytes", len(state)-1)) {
		t.Errorf("one byte over the limit: %v", err)
	}
	if s.WithLimit(0).limit != 16<<10 || s.limit != 16<<10 {
		t.Error("the default limit is not 16 KiB")
	}
	wantInvalid(t, s, prefix+strings.Repeat("A", 64<<20), "64 MiB")
}

// brokenAEAD is a user's own, and quotes what it is given.
type brokenAEAD struct{ err error }

func (a brokenAEAD) Encrypt(_, _ []byte) ([]byte, error) { return nil, a.err }
func (a brokenAEAD) Decrypt(sealed, _ []byte) ([]byte, error) {
	return nil, fmt.Errorf("cannot decrypt %s: %w", base64.RawURLEncoding.EncodeToString(sealed), a.err)
}

func TestFailureOfTheAEADIsFoundInTheError(t *testing.T) {
	down := errors.New("key service is down")
	s, err := NewSealer(brokenAEAD{down}, audience)
	if err != nil {
		t.Fatal(err)
	}
	state := prefix + base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte("secret"), 20))
	wantInvalid(t, s, state, "broken")
	if _, err := s.Open(state); !errors.Is(err, down) {
		t.Errorf("opening: %v", err)
	}
	if _, err := s.Seal(testClaims()); !errors.Is(err, down) {
		t.Errorf("sealing: %v", err)
	}
}
