package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/internal/row"
)

// same fails if a call in memory is another than the one in the file.
func same(t *testing.T, s *Store, id string) {
	t.Helper()
	ctx := context.Background()
	file, _, err := s.loadFile(ctx, row.Text(id))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Load(ctx, id)
	if file == nil {
		if got != nil || err == nil {
			t.Fatalf("%s is not in the file, and %+v", id, got)
		}
		return
	}
	if err != nil || !reflect.DeepEqual(got, file) {
		t.Fatalf("%s is\n%+v (%v)\nand in the file\n%+v", id, got, err, file)
	}
	if kept, _ := s.recent.find(id); kept != nil && kept.row.n != 0 {
		want, err := (&writer{stmt: s.w.stmt}).look(id)
		if err != nil || *want != kept.row {
			t.Fatalf("%s has the columns %+v, in memory %+v (%v)", id, want, kept.row, err)
		}
	}
}

// Crowds of changes, renewals, take-overs and reads: whenever all is still, what
// is kept in memory is what the file holds.
func TestWhatIsKeptInMemoryIsWhatTheFileHolds(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, Options{Path: filepath.Join(t.TempDir(), "store.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids := make([]string, 12)
	for i := range ids {
		ids[i] = fmt.Sprintf("call-%d\x00", i)
	}
	states := []record.State{record.Ready, record.Running, record.Running, record.Waiting, record.Ended}
	for round := range 30 {
		var work sync.WaitGroup
		for g := range 8 {
			work.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(g)))
				for range 10 {
					id := ids[r.IntN(len(ids))]
					c, err := s.Load(ctx, id)
					switch k := r.IntN(10); {
					case k == 0:
						_, _ = s.Renew(ctx, "n/b", []store.LeaseRef{{Call: id, Epoch: 1}}, time.Now().Add(time.Hour))
					case k == 1 && g == 0:
						_ = s.Takeover(ctx, "n", fmt.Sprint(r.IntN(2)))
					case k == 2 && c != nil:
						_ = s.Commit(ctx, record.Change{ID: id, Version: c.Version, Remove: true})
					case k == 3:
						_ = s.Commit(ctx, record.Change{ID: id, Audit: []record.Entry{{Call: id, Event: "refused"}}})
					default:
						version := int64(0)
						if err == nil {
							version = c.Version
						}
						change := typical(id, version)
						change.MaxLive = 8
						change.After.State = states[r.IntN(len(states))]
						change.After.Epoch = int64(r.IntN(2))
						if change.After.State == record.Running {
							change.After.Lease = record.Lease{Holder: "n/b", Until: time.Now().Add(time.Minute)}
						}
						if change.After.State == record.Ended {
							change.After.Result = []byte(`{}`)
						}
						_ = s.Commit(ctx, change)
					}
				}
			})
		}
		work.Wait()
		for _, id := range ids {
			same(t, s, id)
		}
		if round%10 == 9 {
			s.recent.forget()
		}
	}
}

func TestWhatIsKeptInMemoryIsBounded(t *testing.T) {
	var c recent
	for i := range 1000 {
		c.wrote(map[string]*stored{fmt.Sprint(i): {size: 100 << 10}})
	}
	if n := len(c.young) + len(c.old); n*100<<10 > 2*maxRecent {
		t.Errorf("%d calls are kept", n)
	}
	if s, _ := c.find("999"); s == nil {
		t.Error("the last one is not kept")
	}
	c.wrote(map[string]*stored{"big": {size: maxRecentCall + 1}})
	if s, _ := c.find("big"); s != nil {
		t.Error("a large one is kept")
	}
}

func TestWhatWasReadBeforeAWriteIsNotKeptAfterIt(t *testing.T) {
	var c recent
	_, commits := c.load("c")
	c.wrote(map[string]*stored{"other": nil})
	c.read(&record.Call{ID: "c"}, 1, commits)
	if s, _ := c.find("c"); s != nil {
		t.Error("it is kept")
	}
}

// What List has shown, Load knows.
func TestLoadDoesNotGoBackBehindList(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, Options{Path: filepath.Join(t.TempDir(), "store.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Commit(ctx, typical("x", 0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer close(done)
		for v := range int64(1000) {
			if err := s.Commit(ctx, typical("x", v+1)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				all, err := s.List(ctx, store.Filter{Tenant: "acme"})
				if err != nil || len(all) != 1 {
					t.Error(all, err)
					return
				}
				c, err := s.Load(ctx, "x")
				if err != nil || c.Version < all[0].Version {
					t.Errorf("List showed version %d, and Load %v, %v", all[0].Version, c, err)
					return
				}
			}
		})
	}
	work.Wait()
}
