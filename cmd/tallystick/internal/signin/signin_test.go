package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
	"github.com/tallystick/tallystick/cmd/tallystick/internal/signin/signintest"
)

func site(t *testing.T) (*signintest.Site, Options) {
	t.Helper()
	s := signintest.New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(s.Close)
	return s, Options{
		URL: s.URL + "/mcp", File: File(filepath.Join(t.TempDir(), "calls.db"), "desk"), HTTP: s.Client(),
		Show: func(ctx context.Context, page string) error {
			resp, err := http.Get(page) // a browser
			if err == nil {
				resp.Body.Close()
			}
			return err
		},
	}
}

// status is what the server answers to somebody with the kept tokens.
func status(t *testing.T, o Options) (int, error) {
	t.Helper()
	h, err := Handler(o)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ts, err := h.TokenSource(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ts != nil {
			token, err := ts.Token()
			if err != nil {
				return 0, err
			}
			token.SetAuthHeader(req)
		}
		resp, err := o.HTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			return resp.StatusCode, nil
		}
		if err := h.Authorize(t.Context(), req, resp); err != nil {
			return resp.StatusCode, err
		}
	}
	return http.StatusUnauthorized, nil
}

func TestSigningInIsKept(t *testing.T) {
	_, o := site(t)
	if _, err := status(t, o); !errors.Is(err, ErrSignIn) {
		t.Fatalf("before: %v", err)
	}
	if err := In(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if code, err := status(t, o); code != http.StatusOK || err != nil {
		t.Errorf("after: %d, %v", code, err)
	}
	info, err := os.Stat(o.File)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	other := o
	other.URL += "2" // the name has come to mean another server
	if h, err := Handler(other); err != nil {
		t.Error(err)
	} else if ts, _ := h.TokenSource(t.Context()); ts != nil {
		t.Error("the tokens of one server would go to another")
	}
	if err := errors.Join(Out(o.File), Out(o.File)); err != nil {
		t.Error(err)
	}
	if _, err := status(t, o); !errors.Is(err, ErrSignIn) {
		t.Errorf("signed out: %v", err)
	}
}

func TestARefreshIsKeptBeforeItIsUsed(t *testing.T) {
	s, o := site(t)
	s.Lifetime = 1 // oauth2 takes that as over: it refreshes 10 s before
	if err := In(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s.Lifetime = 3600
	for range 3 { // three processes, one after the other
		if code, err := status(t, o); code != http.StatusOK || err != nil {
			t.Fatalf("%d, %v", code, err)
		}
	}
	if n := s.Refreshes(); n != 1 {
		t.Errorf("%d refreshes; want 1", n)
	}
}

func TestTokensOfWhichAnotherProcessHasTheNextAreReadAgain(t *testing.T) {
	s, o := site(t)
	s.Lifetime = 1
	if err := In(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s.Lifetime = 3600
	mine, err := Handler(o)
	if err != nil {
		t.Fatal(err)
	}
	if code, err := status(t, o); code != http.StatusOK || err != nil {
		t.Fatalf("%d, %v", code, err)
	}
	if ts, err := mine.TokenSource(t.Context()); ts == nil || err != nil {
		t.Errorf("%v, %v", ts, err)
	}
	if n := s.Refreshes(); n != 1 {
		t.Errorf("%d refreshes; want 1", n)
	}
}

func TestWhoseTokensAreTakenBackHasToSignInAgain(t *testing.T) {
	s, o := site(t)
	s.Lifetime = 1
	if err := In(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s.Revoke()
	if _, err := status(t, o); !errors.Is(err, ErrSignIn) {
		t.Error(err)
	}
}

func TestAMachineSignsItselfIn(t *testing.T) {
	_, o := site(t)
	o.OAuth = settings.OAuth{ClientID: "robot", ClientSecret: "robot-secret", Machine: true}
	if code, err := status(t, o); code != http.StatusOK || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	o.OAuth.ClientSecret = "wrong"
	if _, err := status(t, o); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Error(err)
	}
}

func TestOnlyTheSignInUnderWayComesBack(t *testing.T) {
	_, o := site(t)
	forged := 0
	o.Show = func(ctx context.Context, page string) error {
		u, err := url.Parse(page)
		if err != nil {
			return err
		}
		back := u.Query().Get("redirect_uri")
		if host := back[:len("http://127.0.0.1:")]; host != "http://127.0.0.1:" {
			t.Errorf("it comes back to %s", back)
		}
		for _, q := range []string{"", "?code=stolen", "?code=stolen&state=guessed", "?error=no&state=guessed", "?state=" + u.Query().Get("state")} {
			resp, err := http.Get(back + q)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusBadRequest {
				forged++
			}
		}
		resp, err := http.Get(page)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := In(t.Context(), o); err != nil || forged != 5 {
		t.Errorf("%d forged returns were refused, of 5; %v", forged, err)
	}
}

func TestARefusedSignInSaysSo(t *testing.T) {
	_, o := site(t)
	o.Show = func(_ context.Context, page string) error {
		u, err := url.Parse(page)
		if err != nil {
			return err
		}
		resp, err := http.Get(u.Query().Get("redirect_uri") + "?error=access_denied&state=" + u.Query().Get("state"))
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := In(t.Context(), o); err == nil || !strings.Contains(err.Error(), "access_denied") {
		t.Error(err)
	}
	gone := errors.New("the person went away")
	o.Show = func(context.Context, string) error { return gone }
	if err := In(t.Context(), o); !errors.Is(err, gone) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o.Show = func(ctx context.Context, _ string) error { return nil }
	if err := In(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := os.Stat(o.File); err == nil {
		t.Error("there are tokens")
	}
}

func TestAServerThatAsksNobodyIsNotSignedInTo(t *testing.T) {
	s, o := site(t)
	o.URL = s.URL + "/.well-known/oauth-authorization-server" // answers POST with 405
	if err := In(t.Context(), o); err == nil || !strings.Contains(err.Error(), "asks nobody to sign in") {
		t.Error(err)
	}
}

func TestTokensThatOthersMayReadAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	path := filepath.Join(t.TempDir(), "tokens", "s.json")
	k := &kept{URL: "https://one.example/", TokenURL: "https://one.example/token", Token: &oauth2.Token{AccessToken: "s3cret"}}
	if err := k.save(path); err != nil {
		t.Fatal(err)
	}
	if got, err := load(path, k.URL); err != nil || got == nil {
		t.Fatalf("%v, %v", got, err)
	}
	for _, mode := range []os.FileMode{0o666, 0o640, 0o602} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got, err := load(path, k.URL); got != nil || err == nil || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%04o: %v, %v", mode, got, err)
		}
	}
}
