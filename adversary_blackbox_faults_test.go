package tallystick_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/bazaar"
	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
)

// A sick store fails at whatever it is asked, now and then, and is slow, while
// it is ill; writes fail before they are applied or after.
type sickStore struct {
	store.Store
	ill  atomic.Bool
	mu   sync.Mutex
	rand *rand.Rand
}

var errIll = errors.New("input/output error")

func (s *sickStore) fate() (fails, after bool) {
	if !s.ill.Load() {
		return false, false
	}
	s.mu.Lock()
	n, m := s.rand.IntN(100), s.rand.IntN(200)
	s.mu.Unlock()
	if n < 3 {
		time.Sleep(time.Duration(m) * time.Millisecond)
	}
	return n < 8, m%2 == 0
}

func (s *sickStore) Now(ctx context.Context) (time.Time, error) {
	if fails, _ := s.fate(); fails {
		return time.Time{}, errIll
	}
	return s.Store.Now(ctx)
}

func (s *sickStore) Load(ctx context.Context, id string) (*record.Call, error) {
	if fails, _ := s.fate(); fails {
		return nil, errIll
	}
	return s.Store.Load(ctx, id)
}

func (s *sickStore) Mark(ctx context.Context, id record.MarkID) (*record.Mark, error) {
	if fails, _ := s.fate(); fails {
		return nil, errIll
	}
	return s.Store.Mark(ctx, id)
}

func (s *sickStore) Due(ctx context.Context, now time.Time, limit int, except []string) (store.Due, error) {
	if fails, _ := s.fate(); fails {
		return store.Due{}, errIll
	}
	return s.Store.Due(ctx, now, limit, except)
}

func (s *sickStore) Renew(ctx context.Context, holder string, leases []store.LeaseRef, until time.Time) ([]store.LeaseRef, error) {
	if fails, _ := s.fate(); fails {
		return nil, errIll
	}
	return s.Store.Renew(ctx, holder, leases, until)
}

func (s *sickStore) Commit(ctx context.Context, c record.Change) error {
	fails, after := s.fate()
	if fails && !after {
		return errIll
	}
	if err := s.Store.Commit(ctx, c); err != nil || !fails {
		return err
	}
	return errIll
}

// Reads, leases and the clock fail too.
func TestACrowdOnASickStoreGetsNothingWrong(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, bazaar.NewFarSide(seed))
	c.Crashes = true
	sick := &sickStore{rand: rand.New(rand.NewPCG(seed, 5))}
	db, stop := openBazaar(t, c, func(s store.Store) store.Store {
		sick.Store = s
		return sick
	})
	sick.ill.Store(true)
	c.crowded(seed, 12, bazaarTime(2*time.Second))
	sick.ill.Store(false)
	c.check(db)
	stop()
}

// Rights are withdrawn and given back at random. What is done is done by those
// who had the right when they were last asked for.
func TestACrowdActsOnlyWhileItMay(t *testing.T) {
	seed := bazaarSeed(t)
	c := newCrowd(t, bazaar.NewFarSide(seed))
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 6))
	said := map[string]bool{}
	denied := 0
	c.opts.Authorize = func(_ context.Context, a tallystick.Access) error {
		mu.Lock()
		defer mu.Unlock()
		ok := r.IntN(8) > 0
		if a.Verb == tallystick.Act {
			said[a.CallID+" "+a.Effect] = ok
		}
		if ok {
			return nil
		}
		denied++
		return errors.New("not today")
	}
	c.Far.Witness = func(ch bazaar.Charge) {
		mu.Lock()
		defer mu.Unlock()
		if !said[ch.Call+" "+ch.Effect] {
			c.Blame("%+v though it may not", ch)
		}
	}
	c.Denials = true
	db, stop := openBazaar(t, c, plainStore)
	c.crowded(seed, 12, bazaarTime(2*time.Second))
	c.check(db)
	t.Logf("denied %d times", denied)
	stop()
}
