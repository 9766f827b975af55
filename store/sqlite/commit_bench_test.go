package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/internal/row"
)

// parallel is how many goroutines per processor commit at once.
const parallel = 32

// typical is a call with a question, as most changes write it: about 1.5 KB
// with its audit entries.
func typical(id string, version int64) record.Change {
	now := time.Now()
	owner := record.Principal{Issuer: "https://id.example.com", Tenant: "acme", Subject: "ann@example.com", Client: "desk"}
	return record.Change{
		ID: id, Version: version,
		After: &record.Call{
			ID: id, Owner: owner, Roles: []string{"support"}, State: record.Waiting, CreatedAt: now, UpdatedAt: now, Deadline: now.Add(time.Hour),
			Action: record.Action{Method: "tools/call", Name: "refund", ArgsDigest: strings.Repeat("d", 43), Version: "1"},
			Args:   []byte(`{"orderId":"1234567890","reason":"damaged on arrival"}`),
			Rounds: []record.Round{{TakenAt: now, Closed: true, Asked: []string{"approve"}}},
			Questions: []record.Question{{Key: "approve", WireKey: "approve", Kind: record.KindForm, Message: "Refund 12.50 to Ann?",
				Request: []byte(strings.Repeat("r", 300)), Digest: strings.Repeat("d", 43), AskedAt: now, Expires: now.Add(time.Minute), State: record.Open}},
		},
		Audit: []record.Entry{
			{At: now, Call: id, Tenant: "acme", Event: "asked", By: record.Actor{Principal: owner, Channel: record.ChannelRun}, Key: "approve"},
			{At: now, Call: id, Tenant: "acme", Event: "round closed", By: record.Actor{Principal: owner, Channel: record.ChannelRun}},
		},
	}
}

// BenchmarkCommit compares the store with the least that could be done for the
// same promise: appending the same bytes to a file by one goroutine that calls
// fsync once for all that wait.
func BenchmarkCommit(b *testing.B) {
	ctx := context.Background()
	p, err := row.Pack(typical("call", 0))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("raw", func(b *testing.B) {
		w := newRaw(b)
		data := make([]byte, p.Size)
		b.SetParallelism(parallel)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := w.append(data); err != nil {
					b.Error(err)
				}
			}
		})
	})
	bench := func(name string, prepare func(s *Store), commit func(s *Store) func() error) {
		b.Run(name, func(b *testing.B) {
			s, err := Open(ctx, Options{Path: filepath.Join(b.TempDir(), "store.db")})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			prepare(s)
			b.SetParallelism(parallel)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				next := commit(s)
				for pb.Next() {
					if err := next(); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	var n atomic.Int64
	bench("open", func(*Store) {}, func(s *Store) func() error {
		return func() error { return s.Commit(ctx, typical(fmt.Sprintf("call-%d", n.Add(1)), 0)) }
	})
	bench("change", func(*Store) {}, func(s *Store) func() error {
		id, version := fmt.Sprintf("call-%d", n.Add(1)), int64(-1)
		return func() error {
			version++
			return s.Commit(ctx, typical(id, version))
		}
	})
}

// raw is a file that is only appended to.
type raw struct{ jobs chan rawJob }

type rawJob struct {
	data []byte
	done chan error
}

func newRaw(b *testing.B) *raw {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	w := &raw{jobs: make(chan rawJob)}
	stopped := make(chan struct{})
	b.Cleanup(func() { close(w.jobs); <-stopped; f.Close() })
	go func() {
		defer close(stopped)
		for j := range w.jobs {
			batch := []rawJob{j}
			for more := true; more && len(batch) < maxJobs; {
				select {
				case j, ok := <-w.jobs:
					if more = ok; ok {
						batch = append(batch, j)
					}
				default:
					more = false
				}
			}
			var all []byte
			for _, j := range batch {
				all = append(all, j.data...)
			}
			_, err := f.Write(all)
			if err == nil {
				err = f.Sync()
			}
			for _, j := range batch {
				j.done <- err
			}
		}
	}()
	return w
}

func (w *raw) append(data []byte) error {
	j := rawJob{data, make(chan error, 1)}
	w.jobs <- j
	return <-j.done
}
