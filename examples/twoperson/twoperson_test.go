package main

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/examples/internal/exampletest"
	"github.com/tallystick/tallystick/examples/internal/web"
	"github.com/tallystick/tallystick/tallysticktest"
)

var rent = TransferArgs{From: "DE1", To: `"><script>alert(1)</script>`, Cents: 120_050, Ref: "rent-march"}

func TestMoneyMovesOnceWhereverItCrashes(t *testing.T) {
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		bank := &Bank{}
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { Add(s, bank) },
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(web.People["ann"]).Call("transfer", rent)
				for _, name := range []string{"frida", "felix"} {
					if bank.Transfers() != 0 {
						t.Errorf("transferred before %s approved", name)
					}
					if err := b.As(web.People[name]).Approve(r, "approve", nil); err != nil {
						t.Error(err)
					}
				}
				var out Transferred
				r.Await("completed").Structured(&out)
				if out.ID != "T1" || !slices.Equal(out.ApprovedBy, []string{"frida", "felix"}) {
					t.Errorf("%+v", out)
				}
			},
			Check: func(*tallysticktest.Bench) {
				if n := bank.Transfers(); n != 1 {
					t.Errorf("%d transfers", n)
				}
			},
		}
	})
}

// get and post use the page as somebody.
func get(h http.Handler, who string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://approvals.example/", nil)
	r.SetBasicAuth(who, who)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func post(h http.Handler, who, from string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://approvals.example/decide", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", from)
	r.SetBasicAuth(who, who)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const here = "http://approvals.example"

// hidden is a form's content, as a browser sends it.
func hidden(page string) url.Values {
	form := url.Values{"decision": {"approve"}}
	for _, m := range regexp.MustCompile(`type="hidden" name="(\w+)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}

// case S40
func TestThePageShowsAllAndEscapesIt(t *testing.T) {
	b := tallysticktest.New(t, func(s *tallystick.Server) { Add(s, &Bank{}) }, nil)
	b.As(web.People["ann"]).Call("transfer", rent)
	page := get(Page(b.Server()), "frida").Body.String()
	if strings.Contains(page, "<script>") {
		t.Error("a script of the caller's is on the page")
	}
	for _, want := range []string{"1200.50 EUR", "rent-march", "120050", "0 of 2"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if page := get(Page(b.Server()), "ann").Body.String(); strings.Contains(page, "rent-march") {
		t.Error("the requester is shown her own request")
	}
	if w := get(Page(b.Server()), "mallory"); w.Code != http.StatusUnauthorized {
		t.Errorf("a stranger: %d", w.Code)
	}
}

// case S42
func TestWhoMayDecideAndFromWhere(t *testing.T) {
	bank := &Bank{}
	b := tallysticktest.New(t, func(s *tallystick.Server) { Add(s, bank) }, nil)
	r := b.As(web.People["ann"]).Call("transfer", rent)
	page := Page(b.Server())
	form := hidden(get(page, "frida").Body.String())
	other := url.Values{"decision": {"approve"}, "call": form["call"], "key": form["key"], "digest": {"other words"}}
	blind := url.Values{"decision": {"approve"}, "call": form["call"], "key": form["key"]}
	tests := []struct {
		claim, who, from string
		form             url.Values
		want             int
	}{
		{"another site", "frida", "https://evil.example", form, http.StatusForbidden},
		{"other words", "frida", here, other, http.StatusConflict},
		{"no words", "frida", here, blind, http.StatusBadRequest},
		{"the requester", "ann", here, form, http.StatusNotFound},
		{"a stranger", "mallory", here, form, http.StatusUnauthorized},
		{"the first", "frida", here, form, http.StatusSeeOther},
		{"the first again", "frida", here, form, http.StatusConflict},
		{"the second", "felix", here, form, http.StatusSeeOther},
	}
	for _, tt := range tests {
		if n := bank.Transfers(); n != 0 {
			t.Fatalf("before %s: %d transfers", tt.claim, n)
		}
		if w := post(page, tt.who, tt.from, tt.form); w.Code != tt.want {
			t.Errorf("%s: %d %s, want %d", tt.claim, w.Code, w.Body, tt.want)
		}
	}
	if r.Await("completed"); bank.Transfers() != 1 {
		t.Errorf("%d transfers", bank.Transfers())
	}
}

func TestTheProgramTransfers(t *testing.T) {
	p := exampletest.Start(t, exampletest.Build(t), "-data", t.TempDir())
	ann := p.Connect("ann", nil)
	done := make(chan string, 1)
	go func() {
		_, text := exampletest.Call(t, ann, "transfer", rent) // waits up to 20 s for the two
		done <- text
	}()
	for _, who := range []string{"frida", "felix"} {
		var form url.Values
		for limit := time.Now().Add(15 * time.Second); form.Get("digest") == "" && time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
			form = hidden(browse(t, p, who, "GET", "/", nil))
		}
		browse(t, p, who, "POST", "/decide", form)
	}
	if text := <-done; text != `{"id":"T1","approvedBy":["frida","felix"]}` {
		t.Errorf("transferred: %s", text)
	}
	p.Stop()
}

// browse is a browser that is logged in.
func browse(t *testing.T, p *exampletest.Process, who, method, path string, form url.Values) string {
	t.Helper()
	req, err := http.NewRequest(method, p.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(who, who)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 400 {
		t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, body, err)
	}
	return string(body)
}
