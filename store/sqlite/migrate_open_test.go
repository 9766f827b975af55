package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store"
	"github.com/tallystick/tallystick/store/internal/row"
)

// olderCalls makes a file of schema 1 with these calls, and returns how many
// questions and held effects are open in them, by tenant.
func olderCalls(t *testing.T, path string, calls []*record.Call) map[string]int {
	t.Helper()
	older(t, path, 1, "")
	db, err := openDB(path, "immediate", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	open := map[string]int{}
	for _, c := range calls {
		p, err := row.Pack(record.Change{ID: c.ID, After: c})
		if err != nil {
			t.Fatal(err)
		}
		open[c.Owner.Tenant] += p.Open
		_, err = db.Exec("INSERT INTO calls (id,tenant,created_at,state,open,live,version,epoch,holder,lease_until,due_at,doc) VALUES (?,?,?,?,?,?,1,0,'',NULL,?,?)",
			row.Text(c.ID), c.Owner.Tenant, row.Nanos(c.CreatedAt), string(c.State), p.Open > 0, p.Live, orNull(p.Due), p.Doc)
		if err != nil {
			t.Fatal(err)
		}
	}
	return open
}

// Schema 1 noted that something of a call is open, schema 2 counts what. Texts
// that look like states, and bytes that are no text, change nothing.
func TestWhatIsOpenIsCountedInAnOlderFile(t *testing.T) {
	const calls, tenants = 420, 3 // of each combination below at least one
	var all []*record.Call
	states := []record.State{record.Waiting, record.Ended, record.Held, record.Ready}
	for i := range calls {
		c := &record.Call{
			ID: fmt.Sprint("c\x00\xff", i), Owner: record.Principal{Tenant: fmt.Sprint("t", i%tenants)},
			State: states[i%len(states)], CreatedAt: time.Unix(int64(i+1), 0),
		}
		for j := range i % 5 {
			q := record.Question{Key: fmt.Sprint("k\x00\"", j), State: record.Open, Message: "open \xff \x00 held"}
			if (i+j)%3 == 0 || c.State == record.Ended {
				q.State = record.Void
			}
			c.Questions = append(c.Questions, q)
		}
		for j := range i % 7 {
			e := record.Effect{Name: fmt.Sprint("e", j), Subject: "\x00held\xfe", State: record.EffectHeld, Result: []byte(`{"state":"held"}`)}
			if (i+j)%2 == 0 {
				e.State = record.EffectDone
			}
			c.Effects = append(c.Effects, e)
		}
		all = append(all, c)
	}
	path := filepath.Join(t.TempDir(), "store.db")
	want := olderCalls(t, path, all)
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	listed := map[string]int{}
	sum := 0
	for tenant, open := range want {
		sum += open
		got, err := s.List(t.Context(), store.Filter{Tenant: tenant, Open: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got {
			p, err := row.Pack(record.Change{ID: c.ID, After: c})
			if err != nil || p.Open == 0 {
				t.Errorf("listed: %q with %d open, %v", c.ID, p.Open, err)
			}
			listed[tenant] += p.Open
		}
	}
	if len(want) != tenants || fmt.Sprint(listed) != fmt.Sprint(want) {
		t.Errorf("open by tenant: %v, not %v", listed, want)
	}
	if n, err := s.Counts(t.Context()); err != nil || n.Open != sum {
		t.Errorf("open at all: %+v, not %d: %v", n, sum, err)
	}
}

// One call that cannot be read does not take the others with it: it shows when
// it is read itself.
func TestAGarbledCallInAnOlderFileIsNoReasonNotToOpenIt(t *testing.T) {
	for name, doc := range map[string]string{
		"half an object":  "'{'",
		"nothing":         "''",
		"bytes":           "x'ff00fe'",
		"another value":   "'7'",
		"no questions":    `'{"questions":7,"effects":"held"}'`,
		"texts":           `'{"questions":["open"],"effects":["held","{"]}'`,
		"strange members": `'{"questions":[7,null,{"state":{}}]}'`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			two := &record.Call{ID: "two", Owner: record.Principal{Tenant: "t"}, State: record.Waiting, CreatedAt: time.Unix(1, 0),
				Questions: []record.Question{{Key: "a", State: record.Open}, {Key: "b", State: record.Open}}}
			olderCalls(t, path, []*record.Call{two})
			db, err := openDB(path, "immediate", 1)
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.Exec(`INSERT INTO calls (id,tenant,created_at,state,open,live,version,epoch,holder,doc) VALUES ('garbled','other',2,'waiting',1,1,1,0,'',CAST(` + doc + ` AS BLOB))`)
			db.Close()
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got, err := s.List(t.Context(), store.Filter{Tenant: "t", Open: true}); err != nil || len(got) != 1 || len(got[0].Open()) != 2 {
				t.Errorf("the one that is whole: %v, %v", got, err)
			}
			if _, err := s.Load(t.Context(), "garbled"); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("the one that is not: %v", err)
			}
			if n, err := s.Counts(t.Context()); err != nil || n.Open < 2 {
				t.Errorf("open: %+v, %v", n, err)
			}
		})
	}
}
