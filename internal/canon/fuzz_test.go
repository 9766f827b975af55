package canon

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"b":[1,2.50,-0e3],"a":{"\u0061\/":null}}`, `[9007199254740993,1e400,1e-9999]`, `{"a":1,"\u0061":2}`, `"\ud83d\ude00\ud800"`,
		nested(MaxDepth), nested(MaxDepth + 1), `{"name":1,"Name":2,"ſ":3}`, "\"\xff\"", `1e99999999999`, `{"a":1}x`, `[1,]`, `{"":{"":{"":0}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		_ = CheckFold(raw, []string{"name", "k", "s", ""})
		form, err := Canonical(raw)
		if !bytes.Equal(raw, before) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			return
		}
		if len(form) > 6*len(raw)+2 {
			t.Fatalf("%d bytes became %d", len(raw), len(form))
		}
		if again, err := Canonical(form); err != nil || !bytes.Equal(again, form) {
			t.Fatalf("the form of %s is %s, %v", form, again, err)
		}
		if len(raw) == 0 {
			return
		}
		// What passes is JSON to everybody, and says what its form says.
		if x, y := decoded(t, raw), decoded(t, form); x != y {
			t.Fatalf("%s says %s, its form says %s", raw, x, y)
		}
	})
}

// decoded is what the standard library reads, which rounds numbers.
func decoded(t *testing.T, raw []byte) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	b, err := json.Marshal(rounded(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func rounded(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return "too large"
		}
		if f == 0 {
			return 0.0 // not -0
		}
		return f
	case []any:
		for i := range v {
			v[i] = rounded(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = rounded(v[k])
		}
	}
	return v
}

func BenchmarkDigest(b *testing.B) {
	raw := []byte(`{"orderId":"A-1234","amount":12.50,"lines":[{"sku":"x","n":1},{"sku":"y","n":20}],"note":"caf\u00e9"}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := Digest(raw); err != nil {
			b.Fatal(err)
		}
	}
}
