// Package bazaar tries a server from outside: its tools charge a far side that
// writes down what really happened, a crowd of callers does what it likes, and
// then what the crowd was told, what is on record and what happened are compared.
package bazaar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallystick/tallystick"
)

// A Charge is what arrives at the far side.
type Charge struct {
	Call, Tenant, Effect, Subject, Key string
	Facts                              int
	Honours                            bool      // the far side takes one key once
	Began                              time.Time // when the effect's function was called
	At                                 time.Time // when it was done
}

func (c Charge) what() string { return c.Tenant + ": " + c.Effect + " " + c.Subject }

// A FarSide holds orders and a ledger. It is in another process than the
// server where that is killed.
type FarSide struct {
	// Mood is the share of charges that end badly, and Slow how long one takes
	// at most.
	Mood float64
	Slow time.Duration
	// Arrived and Charged are told of each charge: before anything is done, and
	// when it is in the ledger and nobody was told. Witness is Charged under the
	// far side's lock.
	Arrived, Charged, Witness func(Charge)

	mu     sync.Mutex
	rand   *rand.Rand
	orders map[string]int
	ledger []Charge
	came   []Charge             // all that arrived, done or not
	byKey  map[string]int       // keys that it honours, to the entry of the ledger
	barred map[string]time.Time // what began before then is not done any more
	late   int                  // charges that came too late
}

// NewFarSide returns a far side without any charge.
func NewFarSide(seed uint64) *FarSide {
	return &FarSide{
		rand: rand.New(rand.NewPCG(seed, 7)), Mood: 0.1, Slow: 4 * time.Millisecond,
		orders: map[string]int{}, byKey: map[string]int{}, barred: map[string]time.Time{},
	}
}

func (f *FarSide) order(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.orders[id]
}

// Change changes an order: what was approved of it counts no more.
func (f *FarSide) Change(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orders[id]++
}

// happened is what an operator finds out: what did not happen until now will
// not happen, however late it arrives.
func (f *FarSide) happened(tenant, effect, subject string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	what := Charge{Tenant: tenant, Effect: effect, Subject: subject}.what()
	if slices.ContainsFunc(f.ledger, func(c Charge) bool { return c.what() == what }) {
		return true
	}
	f.barred[what] = time.Now()
	return false
}

var errRefused = errors.New("closed for lunch")

// charge writes down a charge, once for one key if the far side honours it. It
// may fail, before that or after; only in the first case does it say so.
func (f *FarSide) charge(c Charge) (n int, err error) {
	f.mu.Lock()
	f.came = append(f.came, c)
	mood, slow := f.rand.Float64(), time.Duration(f.rand.Int64N(int64(f.Slow)))
	f.mu.Unlock()
	if f.Arrived != nil {
		f.Arrived(c)
	}
	time.Sleep(slow)
	n, fresh, err := f.enter(c, mood)
	if fresh && f.Charged != nil {
		f.Charged(c)
	}
	return n, err
}

func (f *FarSide) enter(c Charge, mood float64) (n int, fresh bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case mood < f.Mood/3:
		return 0, false, errRefused
	case mood < 2*f.Mood/3:
		return 0, false, errors.New("no reply, and nothing happened")
	}
	if n, ok := f.byKey[c.Key]; ok && c.Honours {
		return n, false, nil
	}
	if c.Began.Before(f.barred[c.what()]) {
		f.late++
		return 0, false, errRefused
	}
	if f.Witness != nil {
		f.Witness(c)
	}
	c.At = time.Now()
	f.ledger = append(f.ledger, c)
	f.byKey[c.Key] = len(f.ledger)
	if mood < f.Mood {
		return 0, true, errors.New("no reply, and it happened")
	}
	return len(f.ledger), true, nil
}

// books are the ledger and all that arrived, as they are now.
func (f *FarSide) books() (ledger, came []Charge) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ledger), slices.Clone(f.came)
}

// ServeHTTP is the far side for a server in another process.
func (f *FarSide) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/order" {
		fmt.Fprint(w, f.order(r.URL.Query().Get("id")))
		return
	}
	var c Charge
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	n, err := f.charge(c)
	switch {
	case errors.Is(err, errRefused):
		w.WriteHeader(http.StatusConflict)
	case err != nil:
		w.WriteHeader(http.StatusBadGateway)
	}
	fmt.Fprint(w, n)
}

// A Shop is the far side as the server's tools see it.
type Shop interface {
	order(id string) (int, error)
	charge(ctx context.Context, c Charge) (int, error)
}

// Nearby is a far side in the server's own process.
func Nearby(f *FarSide) Shop { return nearby{f} }

type nearby struct{ f *FarSide }

func (s nearby) order(id string) (int, error) { return s.f.order(id), nil }
func (s nearby) charge(_ context.Context, c Charge) (int, error) {
	n, err := s.f.charge(c)
	if errors.Is(err, errRefused) {
		err = tallystick.NotDone(err)
	}
	return n, err
}

// Faraway is the far side at an address.
func Faraway(base string) Shop { return faraway{base} }

type faraway struct{ base string }

func (s faraway) order(id string) (int, error) {
	resp, err := http.Get(s.base + "/order?id=" + url.QueryEscape(id))
	if err != nil {
		return 0, err
	}
	return number(resp)
}

// charge takes a moment before it sends anything. Mail is sent by something that
// does not hear when it is told to stop, and sometimes takes long.
func (s faraway) charge(ctx context.Context, c Charge) (int, error) {
	wait := rand.N(4 * time.Millisecond)
	if c.Effect == "mail" {
		ctx = context.WithoutCancel(ctx)
		if rand.N(5) == 0 {
			wait = rand.N(3 * time.Second)
		}
	}
	time.Sleep(wait)
	body, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.base+"/charge", strings.NewReader(string(body)))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return number(resp)
}

func number(resp *http.Response) (n int, err error) {
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusConflict:
		return 0, tallystick.NotDone(errRefused)
	case http.StatusOK:
		_, err = fmt.Fscan(resp.Body, &n)
		return n, err
	}
	return 0, errors.New("no reply")
}
