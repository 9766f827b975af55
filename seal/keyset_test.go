package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/mac"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
)

// copyKeyset is k as another process has it.
func copyKeyset(t testing.TB, k *Keyset) *Keyset {
	t.Helper()
	var b bytes.Buffer
	if err := k.Write(&b); err != nil {
		t.Fatal(err)
	}
	other, err := ReadKeyset(&b)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// Two processes take each step one after the other. At no point does either
// meet a state that it cannot open.
// case S03
func TestRotationInThreeStepsLosesNoState(t *testing.T) {
	a := newTestKeyset(t)
	b := copyKeyset(t, a)
	oldKey := a.List()[0].ID
	var states []string
	check := func(step string) {
		t.Helper()
		states = append(states, mustSeal(t, newTestSealer(t, a, audience), testClaims()), mustSeal(t, newTestSealer(t, b, audience), testClaims()))
		for i, state := range states {
			for name, k := range map[string]*Keyset{"first": a, "second": b} {
				if _, err := newTestSealer(t, k, audience).Open(state); err != nil {
					t.Errorf("%s: state %d does not open in the %s process", step, i, name)
				}
			}
		}
	}
	check("before")
	newKey, err := a.Add()
	if err != nil {
		t.Fatal(err)
	}
	check("added in one")
	b = copyKeyset(t, a)
	check("added in both")
	if err := a.Promote(newKey); err != nil {
		t.Fatal(err)
	}
	check("promoted in one")
	b = copyKeyset(t, a)
	check("promoted in both")

	if want := []KeyInfo{{ID: oldKey, Enabled: true}, {ID: newKey, Primary: true, Enabled: true}}; fmt.Sprint(b.List()) != fmt.Sprint(want) {
		t.Errorf("keys %v, want %v", b.List(), want)
	}
	live := newTestSealer(t, b, audience)
	if err := b.Disable(oldKey); err != nil {
		t.Fatal(err)
	}
	wantInvalid(t, live, states[0], "of the disabled key")
	if _, err := live.Open(states[len(states)-1]); err != nil {
		t.Errorf("of the new key: %v", err)
	}
	b = copyKeyset(t, b)
	wantInvalid(t, newTestSealer(t, b, audience), states[0], "of the disabled key, after a restart")
	if got := b.List()[0]; got.ID != oldKey || got.Enabled {
		t.Errorf("the disabled key is listed as %+v", got)
	}
}

func TestRefusedStepsChangeNothing(t *testing.T) {
	k := newTestKeyset(t)
	first := k.List()[0].ID
	second, err := k.Add()
	if err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(k.List())
	for what, err := range map[string]error{
		"disabling the primary":       k.Disable(first),
		"disabling an unknown key":    k.Disable(first ^ second),
		"promoting an unknown key":    k.Promote(first ^ second),
		"promoting key 0":             k.Promote(0),
		"disabling the primary again": k.Disable(first),
	} {
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if after := fmt.Sprint(k.List()); after != before {
		t.Errorf("keys were %s, are %s", before, after)
	}
	if err := k.Disable(second); err != nil {
		t.Fatal(err)
	}
	if k.Promote(second) == nil {
		t.Error("a disabled key is promoted")
	}
}

func TestSealingWhileKeysRotate(t *testing.T) {
	k := newTestKeyset(t)
	s := newTestSealer(t, k, audience)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := s.Open(mustSeal(t, s, testClaims())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		id, err := k.Add()
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Promote(id); err != nil {
			t.Fatal(err)
		}
		_ = k.List()
	}
	wg.Wait()
}

func TestEncryptedKeyset(t *testing.T) {
	k, master := newTestKeyset(t), newTestKeyset(t)
	var b bytes.Buffer
	if err := k.WriteEncrypted(&b, master.AEAD()); err != nil {
		t.Fatal(err)
	}
	written := b.String()
	other, err := ReadEncryptedKeyset(strings.NewReader(written), master.AEAD())
	if err != nil {
		t.Fatal(err)
	}
	state := mustSeal(t, newTestSealer(t, k, audience), testClaims())
	if _, err := newTestSealer(t, other, audience).Open(state); err != nil {
		t.Error(err)
	}
	if _, err := ReadEncryptedKeyset(strings.NewReader(written), newTestKeyset(t).AEAD()); !errors.Is(err, ErrKeyset) {
		t.Errorf("another master key: %v", err)
	}
	if _, err := ReadKeyset(strings.NewReader(written)); !errors.Is(err, ErrKeyset) {
		t.Errorf("as clear: %v", err)
	}
	if secret := secretOf(t, k); strings.Contains(written, secret) {
		t.Error("the secret is in clear")
	}
}

// secretOf is the text that must be in no error.
func secretOf(t testing.TB, k *Keyset) string {
	t.Helper()
	var b bytes.Buffer
	if err := k.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(b.String(), `"value":"`)
	secret, _, ok := strings.Cut(rest, `"`)
	if !ok || len(secret) < 40 {
		t.Fatal("no secret found in the written keyset")
	}
	return secret
}

func TestDamagedKeysetIsAnErrorWithoutItsContent(t *testing.T) {
	k := newTestKeyset(t)
	var b bytes.Buffer
	if err := k.Write(&b); err != nil {
		t.Fatal(err)
	}
	whole, secret := b.String(), secretOf(t, k)
	damaged := map[string]string{
		"empty": "", "null": "null", "array": "[]", "object": "{}", "zeros": strings.Repeat("\x00", 300), "noise": "\x89PNG\r\n\x1a\n",
		"twice": whole + whole, "more": whole + "x", "unknown field": strings.Replace(whole, `"primaryKeyId"`, `"primaryKey"`, 1),
		"secret not base64": strings.Replace(whole, secret, secret[:10]+"!"+secret[10:], 1),
		"secret short":      strings.Replace(whole, secret, secret[:8], 1),
		"secret a number":   strings.Replace(whole, `"`+secret+`"`, "7", 1),
		"value unquoted":    strings.Replace(whole, `"`+secret+`"`, secret, 1),
		"no status":         strings.Replace(whole, `"ENABLED"`, `"UNKNOWN_STATUS"`, 1),
		"destroyed":         strings.Replace(whole, `"ENABLED"`, `"DESTROYED"`, 1),
		"disabled primary":  strings.Replace(whole, `"ENABLED"`, `"DISABLED"`, 1),
		"other type":        strings.Replace(whole, "XAesGcmKey", "AesGcmKey", 1),
		"raw prefix":        strings.Replace(whole, `"TINK"`, `"RAW"`, 1),
		"no key":            `{"primaryKeyId":1,"key":[]}`,
		"null key":          `{"primaryKeyId":1,"key":[null]}`,
		"empty key":         `{"primaryKeyId":1,"key":[{}]}`,
		"deep":              strings.Repeat(`{"key":[`, 20000),
		"over 1 MiB":        whole + strings.Repeat(" ", 1<<20),
	}
	for i := range len(whole) - 1 {
		damaged[fmt.Sprint("cut at ", i)] = whole[:i]
	}
	for why, raw := range damaged {
		got, err := ReadKeyset(strings.NewReader(raw))
		if err == nil || got != nil {
			t.Errorf("%s: read", why)
			continue
		}
		for i := 0; i+8 <= len(secret); i += 8 {
			if strings.Contains(err.Error(), secret[i:i+8]) {
				t.Errorf("%s: the error holds the key: %v", why, err)
			}
		}
	}
	if _, err := ReadKeyset(strings.NewReader(whole + "\n\n")); err != nil {
		t.Errorf("with a line end, as editors add: %v", err)
	}
	_, err := ReadKeyset(iotest.ErrReader(errors.New("disk on fire")))
	if err == nil || errors.Is(err, ErrKeyset) || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestUnfitKeysAreRefused(t *testing.T) {
	for name, template := range map[string]*tinkpb.KeyTemplate{
		"AES-256-GCM":   aead.AES256GCMKeyTemplate(),
		"short nonce":   aead.XAES256GCM160BitNonceKeyTemplate(),
		"no key id":     aead.XAES256GCM192BitNonceNoPrefixKeyTemplate(),
		"no encryption": mac.HMACSHA256Tag256KeyTemplate(),
	} {
		h, err := keyset.NewHandle(template)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := insecurecleartextkeyset.Write(h, keyset.NewJSONWriter(&b)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKeyset(&b); err == nil {
			t.Errorf("%s is accepted", name)
		} else if name == "no key id" && !strings.Contains(err.Error(), "XAES256_GCM_192_BIT_NONCE") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var b bytes.Buffer
	k := newTestKeyset(t)
	if err := k.Write(&b); err != nil {
		t.Fatal(err)
	}
	// One secret under two ids would give a state two accepted texts.
	head, rest, _ := strings.Cut(b.String(), `"key":[`)
	key, tail, _ := strings.Cut(rest, "]")
	other := strings.Replace(key, fmt.Sprintf(`"keyId":%d`, k.List()[0].ID), `"keyId":77`, 1)
	if other == key {
		t.Fatal("the written form is not as this test expects it")
	}
	for why, second := range map[string]string{"one secret under two ids": other, "one key twice": key} {
		if _, err := ReadKeyset(strings.NewReader(head + `"key":[` + key + "," + second + "]" + tail)); err == nil {
			t.Errorf("%s is accepted", why)
		}
	}
}

func TestPrintedKeysetHoldsNoSecret(t *testing.T) {
	k := newTestKeyset(t)
	secret, err := base64.StdEncoding.DecodeString(secretOf(t, k))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		printed := fmt.Sprintf(format, k) + fmt.Sprintf(format, newTestSealer(t, k, audience))
		if strings.Contains(printed, secretOf(t, k)) || strings.Contains(printed, string(secret)) || strings.Contains(printed, fmt.Sprint(secret[len(secret)-8:])[1:]) {
			t.Errorf("%s prints the key", format)
		}
	}
}
