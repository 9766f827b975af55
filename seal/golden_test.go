package seal

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var newGolden = flag.Bool("golden.new", false, "write testdata/golden.json, if there is none: of a new format only")

// golden is testdata/golden.json. States are out there, in the hands of
// clients, when a server is updated: all of Open must keep opening to these
// claims, and nothing of Refuse may begin to.
type golden struct {
	Comment string
	Keyset  json.RawMessage
	Open    []goldenState
	Refuse  []goldenState
}

type goldenState struct {
	Name     string
	Audience string
	State    string
	Claims   *Claims `json:",omitempty"`
}

const goldenFile = "testdata/golden.json"

func TestGoldenStates(t *testing.T) {
	if *newGolden {
		writeGolden(t)
	}
	raw, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Open) < 8 || len(g.Refuse) < 20 {
		t.Fatalf("only %d states to open and %d to refuse", len(g.Open), len(g.Refuse))
	}
	k, err := ReadKeyset(strings.NewReader(string(g.Keyset)))
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range g.Open {
		c, err := newTestSealer(t, k, state.Audience).Open(state.State)
		if err != nil || !reflect.DeepEqual(c, *state.Claims) {
			t.Errorf("%s: opens to %+v, %v; want %+v", state.Name, c, err, *state.Claims)
		}
	}
	for _, state := range g.Refuse {
		wantInvalid(t, newTestSealer(t, k, state.Audience), state.State, state.Name)
	}
}

// writeGolden makes the file once. It is never made again: a format that
// cannot pass it needs another prefix and another file.
func writeGolden(t *testing.T) {
	if _, err := os.Stat(goldenFile); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is there already", goldenFile)
	}
	old := newTestKeyset(t)
	retired := old.List()[0].ID
	ofRetired := mustSeal(t, newTestSealer(t, old, audience), testClaims())
	k := old
	step := func(id uint32, err error) uint32 {
		if err == nil {
			err = k.Promote(id)
		}
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	step(k.Add())
	ofOld := mustSeal(t, newTestSealer(t, k, audience), testClaims())
	step(k.Add())
	if err := k.Disable(retired); err != nil {
		t.Fatal(err)
	}

	g := golden{Comment: "Keys of tests, known to everybody. Never change this file: see golden_test.go."}
	var b strings.Builder
	if err := k.Write(&b); err != nil {
		t.Fatal(err)
	}
	g.Keyset = json.RawMessage(b.String())
	open := func(name, audience, state string) {
		c, err := newTestSealer(t, k, audience).Open(state)
		if err != nil {
			t.Fatal(err)
		}
		g.Open = append(g.Open, goldenState{name, audience, state, &c})
	}
	seal := func(name, audience string, change func(*Claims)) string {
		c := testClaims()
		change(&c)
		state := mustSeal(t, newTestSealer(t, k, audience), c)
		open(name, audience, state)
		return state
	}
	kept := seal("kept call", audience, func(*Claims) {})
	open("kept call, by the key before the primary", audience, ofOld)
	seal("carried call", audience, func(c *Claims) { c.Call, c.Journal = "", []byte(`{"answers":[{"key":"approve","value":true}]}`) })
	seal("no claims", audience, func(c *Claims) { *c = Claims{} })
	seal("text beyond ASCII", "Bücher 本", func(c *Claims) { c.Client = "Fábián 李 \x00" })
	seal("first round", audience, func(c *Claims) { c.Round = 0 })
	seal("last round", audience, func(c *Claims) { c.Round = 1<<31 - 1 })
	seal("before 1970", audience, func(c *Claims) { c.Issued = time.Date(1969, 12, 31, 23, 59, 59, 999e6, time.UTC) })
	seal("latest time", audience, func(c *Claims) { c.Deadline = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC) })
	seal("long text", audience, func(c *Claims) { c.Client = strings.Repeat("x", 300) })
	g.Refuse = refusedForms(t, kept)
	g.Refuse = append(g.Refuse,
		goldenState{Name: "of a disabled key", Audience: audience, State: ofRetired},
		goldenState{Name: "of an unknown key", Audience: audience, State: mustSeal(t, newTestSealer(t, newTestKeyset(t), audience), testClaims())},
		goldenState{Name: "of another audience", Audience: Audience("orders", "staging"), State: kept})
	s := newTestSealer(t, k, audience)
	for name, plain := range map[string]string{"nothing sealed": "", "JSON sealed": "{}", "longer integer sealed": "\x81\x00p\x00\x00\x00\x00\x00\x00\x00\x00"} {
		sealed, err := s.aead.Encrypt([]byte(plain), s.associated)
		if err != nil {
			t.Fatal(err)
		}
		g.Refuse = append(g.Refuse, goldenState{Name: name, Audience: audience, State: prefix + base64.RawURLEncoding.EncodeToString(sealed)})
	}
	raw, err := json.MarshalIndent(g, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, append(raw, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func refusedForms(t *testing.T, state string) (refused []goldenState) {
	body := state[len(prefix):]
	sealed, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	flip := func(i int) string {
		other := append([]byte{}, sealed...)
		other[i] ^= 1
		return prefix + base64.RawURLEncoding.EncodeToString(other)
	}
	for _, form := range [][2]string{
		{"empty", ""}, {"prefix only", prefix}, {"no prefix", body}, {"other prefix", "ts2." + body}, {"upper-case prefix", "TS1." + body},
		{"-TAMPERED at the end", state + "-TAMPERED"}, {"newline at the end", state + "\n"}, {"newline inside", state[:40] + "\n" + state[40:]},
		{"padding", state + strings.Repeat("=", (4-len(body)%4)%4)}, {"one padding more", state + "="},
		{"standard alphabet with padding", prefix + base64.StdEncoding.EncodeToString(sealed) + "="},
		{"cut by one", state[:len(state)-1]}, {"cut by four", state[:len(state)-4]}, {"cut to half", state[:len(state)/2]}, {"one character more", state + "A"},
		{"Tink version changed", flip(0)}, {"key id changed", flip(4)}, {"salt changed", flip(5)}, {"nonce changed", flip(17)},
		{"text changed", flip(40)}, {"tag changed", flip(len(sealed) - 1)}, {"space before", " " + state}, {"null", "null"}, {"zero bytes", "\x00\x00\x00\x00\x00"},
	} {
		if form[1] != state {
			refused = append(refused, goldenState{Name: form[0], Audience: audience, State: form[1]})
		}
	}
	return refused
}
