package desk

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tallystick/tallystick"
)

func TestShopKnowsARequestAgainByItsKeyOnly(t *testing.T) {
	shop, err := OpenShop(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer shop.Close()
	ctx := t.Context()
	first, err := shop.Book(ctx, KindRefund, "A-1001", 4000, "k1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := shop.Book(ctx, KindRefund, "A-1001", 4000, "k1")
	if err != nil || again != first {
		t.Errorf("the same key: %v, %v; want %v", again, err, first)
	}
	if got, err := shop.Tally(ctx, KindRefund, "A-1001"); err != nil || got.Lines != 1 || got.Asked != 2 || got.Cents != 4000 {
		t.Errorf("the ledger: %+v, %v", got, err)
	}
	if _, err := shop.Book(ctx, KindRefund, "A-1001", 4000, "k2"); err != nil {
		t.Fatal(err)
	}
	if got, err := shop.Tally(ctx, KindRefund, "A-1001"); err != nil || got.Lines != 2 || got.Cents != 8000 {
		t.Errorf("another key pays again: %+v, %v", got, err)
	}
}

func TestPeopleKeepTheirTokens(t *testing.T) {
	folder := t.TempDir()
	first, err := LoadPeople(folder)
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadPeople(folder)
	if err != nil || first.Named("ann") != second.Named("ann") {
		t.Errorf("ann has another token: %v", err)
	}
	info, err := os.Stat(filepath.Join(folder, "people.json"))
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the tokens: %v", info.Mode())
	}
	if _, err := first.verify(t.Context(), "", nil); err == nil {
		t.Error("the empty token is somebody's")
	}
	if who, err := first.verify(t.Context(), first.Named("fay").Token, nil); err != nil || who.UserID != "fay" {
		t.Errorf("fay's token: %v, %v", who, err)
	}
}

func TestPayoutsAreForFinanceWhateverIsStored(t *testing.T) {
	people := People{{Name: "ann", Role: RoleSupport}, {Name: "fay", Role: RoleFinance}}
	tests := []struct {
		who, tool string
		verb      tallystick.Verb
		allowed   bool
	}{
		{"fay", toolPayout, tallystick.Begin, true},
		{"ann", toolPayout, tallystick.Begin, false},
		{"ann", toolPayout, tallystick.Act, false},
		{"gone", toolPayout, tallystick.Resume, false},
		{"ann", toolPayout, tallystick.Watch, true},
		{"ann", "refund", tallystick.Begin, true},
	}
	for _, tt := range tests {
		// The stored role says finance; what counts is the role now.
		a := tallystick.Access{Verb: tt.verb, Name: tt.tool, By: tallystick.Identity{Subject: tt.who, Roles: []string{RoleFinance}}, Stored: true}
		if err := people.authorize(t.Context(), a); (err == nil) != tt.allowed {
			t.Errorf("%s, %s %s: %v, want allowed %t", tt.who, tt.verb, tt.tool, err, tt.allowed)
		}
	}
}

func TestDeskServesThisMachineOnly(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0", "example.com:0", "127.0.0.1"} {
		if l, err := listen(t.Context(), addr); err == nil {
			l.Close()
			t.Errorf("it listens on %s", addr)
		}
	}
	l, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
