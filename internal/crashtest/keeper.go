//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/internal/bazaar"
	"github.com/tallystick/tallystick/store/sqlite"
)

var errFindings = errors.New("something was lost, done twice or changed")

// A moment is when a server is killed.
type moment string

const (
	random  moment = "at a random moment"
	arrived moment = "when a charge arrives"
	charged moment = "when a charge is done"
	acked   moment = "when an answer is acknowledged"
	told    moment = "when a task id is told"
	round   moment = "when a round is answered"
	ended   moment = "when an end is told"
	startup moment = "while it starts"
)

// moments are in the table's order, with how often each is chosen.
var moments = []struct {
	moment
	share int
}{{random, 5}, {startup, 4}, {arrived, 3}, {charged, 3}, {acked, 2}, {told, 2}, {round, 2}, {ended, 1}}

// A trap kills the server, or stops it, at the nth time of something.
type trap struct {
	moment
	signal syscall.Signal
	left   atomic.Int64
	sprung chan struct{}
}

// A keeper keeps a server going that it kills.
type keeper struct {
	plan
	dir   string // absolute
	rand  *rand.Rand
	far   *bazaar.FarSide
	crowd *bazaar.Crowd
	web   *httptest.Server // the far side
	now   atomic.Pointer[child]
	trap  atomic.Pointer[trap]

	began                time.Time
	took                 time.Duration
	kills                map[moment]int
	stops, drains, looks int
	restarts             []time.Duration
	most                 int // tries of one restart
	tally                bazaar.Tally
}

func newKeeper(p plan, dir string) *keeper {
	k := &keeper{plan: p, dir: dir, rand: rand.New(rand.NewPCG(p.seed, 3)), far: bazaar.NewFarSide(p.seed), kills: map[moment]int{}}
	k.far.Slow = 20 * time.Millisecond
	k.crowd = bazaar.NewCrowd(k.far)
	k.crowd.Crashes = true
	k.far.Arrived = func(bazaar.Charge) { k.spring(arrived) }
	k.far.Charged = func(bazaar.Charge) { k.spring(charged) }
	k.crowd.Told = func(what string) {
		k.spring(map[string]moment{"ack": acked, "task": told, "round": round, "end": ended}[what])
	}
	return k
}

// spring is told of each moment, by whoever it comes to.
func (k *keeper) spring(at moment) {
	t := k.trap.Load()
	if t == nil || t.moment != at || t.left.Add(-1) > 0 || !k.trap.CompareAndSwap(t, nil) {
		return
	}
	k.now.Load().signal(t.signal)
	close(t.sprung)
}

// await signals the server at that moment, or at a random one if it does not
// come, and returns which it was.
func (k *keeper) await(at moment, s syscall.Signal) moment {
	time.Sleep(k.upTo(300 * time.Millisecond))
	if at == random {
		k.now.Load().signal(s)
		return at
	}
	t := &trap{moment: at, signal: s, sprung: make(chan struct{})}
	t.left.Store(1 + k.rand.Int64N(5))
	k.trap.Store(t)
	select {
	case <-t.sprung:
		return at
	case <-time.After(time.Second):
	}
	if !k.trap.CompareAndSwap(t, nil) {
		<-t.sprung
		return at
	}
	k.now.Load().signal(s)
	return random
}

func (k *keeper) upTo(d time.Duration) time.Duration { return time.Duration(k.rand.Int64N(int64(d))) }

// work lets the crowd loose, kills, and compares.
func (k *keeper) work(ctx context.Context) (err error) {
	k.began = time.Now()
	defer func() { k.took = time.Since(k.began) }()
	k.web = httptest.NewServer(k.far)
	defer k.web.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if err := k.restart(ctx); err != nil {
		return err
	}
	defer func() { // should something fail; else it has ended
		c := k.now.Load()
		c.kill()
		<-c.dead
	}()
	let, stop := context.WithCancel(ctx)
	var crowd sync.WaitGroup
	for i := range k.clients {
		crowd.Go(func() { k.crowd.Wander(let, k.seed+uint64(i)) })
	}
	err = k.campaign(ctx)
	stop()
	crowd.Wait()
	if err != nil {
		return err
	}
	return k.finish(ctx)
}

// campaign kills, stops and drains the server until it was killed often enough.
func (k *keeper) campaign(ctx context.Context) error {
	for n := 0; n < k.plan.kills && len(k.crowd.Wrong()) == 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := k.choose()
		if at == startup {
			n += k.killStarting(min(1+k.rand.IntN(3), k.plan.kills-n))
		} else {
			at = k.await(at, syscall.SIGKILL)
			k.kills[at]++
			n++
		}
		<-k.now.Load().dead
		if every := max(1, min(10, k.plan.kills/2)); n/every > k.looks {
			k.looks = n / every
			if err := k.look(ctx, n); err != nil {
				return err
			}
		}
		if err := k.restart(ctx); err != nil {
			return err
		}
		if k.verbose {
			fmt.Fprintf(k.out, "%4d  killed %s; back after %v\n", n, at, k.restarts[len(k.restarts)-1].Round(time.Millisecond))
		}
		k.crowd.Again(ctx, 20)
		if n/6 > k.stops {
			k.stop()
		}
		if n/9 > k.drains {
			if err := k.drain(ctx); err != nil {
				return err
			}
		}
		k.crowd.Fresh(40 + 2*n)
	}
	return nil
}

func (k *keeper) choose() moment {
	sum := 0
	for _, m := range moments {
		sum += m.share
	}
	n := k.rand.IntN(sum)
	for _, m := range moments {
		if n -= m.share; n < 0 {
			return m.moment
		}
	}
	return random
}

// killStarting kills the server and then others in its place, n in all, each
// before it has served for long.
func (k *keeper) killStarting(n int) int {
	time.Sleep(k.upTo(300 * time.Millisecond))
	k.now.Load().kill()
	<-k.now.Load().dead
	k.kills[random]++
	for range n - 1 {
		c, err := launch(k.self, k.dir, k.web.URL)
		if err != nil {
			k.crowd.Blame("launching: %v", err)
			return n
		}
		time.Sleep(k.upTo(k.restarts[len(k.restarts)-1] + 5*time.Millisecond))
		c.kill()
		<-c.dead
		k.kills[startup]++
	}
	return n
}

// stop stops the server for longer than its leases last, and lets it go on.
func (k *keeper) stop() {
	k.await([]moment{random, arrived, charged}[k.rand.IntN(3)], syscall.SIGSTOP)
	time.Sleep(lease*3/2 + k.upTo(lease))
	k.now.Load().signal(syscall.SIGCONT)
	k.stops++
}

// drain ends the server as a supervisor does.
func (k *keeper) drain(ctx context.Context) error {
	k.await([]moment{random, charged}[k.rand.IntN(2)], syscall.SIGTERM)
	if err := k.now.Load().drained(); err != nil {
		k.crowd.Blame("SIGTERM: %v", err)
	}
	k.drains++
	return k.restart(ctx)
}

// restart has a server serve, at the first try or soon after.
func (k *keeper) restart(ctx context.Context) error {
	var err error
	for try := 1; try <= 3; try++ {
		began := time.Now()
		var c *child
		if c, err = launch(k.self, k.dir, k.web.URL); err != nil {
			continue
		}
		var base string
		if base, err = c.ready(time.Minute); err != nil {
			c.kill()
			<-c.dead
			continue
		}
		k.restarts, k.most = append(k.restarts, time.Since(began)), max(k.most, try)
		k.now.Store(c)
		k.crowd.Serve(base+"/mcp", base+"/page")
		return ctx.Err()
	}
	return fmt.Errorf("the server does not come back: %w", err)
}

// look compares while the server is dead, in a copy of what it left: opening
// the store would mend it.
func (k *keeper) look(ctx context.Context, n int) error {
	copied := filepath.Join(k.dir, "copy")
	if err := os.RemoveAll(copied); err != nil {
		return err
	}
	if err := os.MkdirAll(copied, 0o700); err != nil {
		return err
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(filepath.Join(copied, embedded.StoreFile+suffix), filepath.Join(k.dir, "data", embedded.StoreFile+suffix)); err != nil {
			return err
		}
	}
	if err := k.compare(ctx, copied, false); err != nil {
		return err
	}
	t := k.tally
	fmt.Fprintf(k.out, "%4d kills  %3.0f s  %6d calls  %6d charges  %6d answers  %7d audit entries  findings %d\n",
		n, time.Since(k.began).Seconds(), t.Calls, t.Charges, t.Answers, t.Entries, len(k.crowd.Wrong()))
	return os.RemoveAll(copied)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) && strings.HasSuffix(from, "-wal") {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// compare checks the file and all that is in it.
func (k *keeper) compare(ctx context.Context, folder string, settled bool) error {
	path := filepath.Join(folder, embedded.StoreFile)
	if err := bazaar.Sound(path); err != nil {
		k.crowd.Blame("%v", err)
	}
	db, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		return err
	}
	defer db.Close()
	k.tally, err = k.crowd.Check(ctx, db, settled)
	return err
}

// finish lets everything come to rest, asks for every task once more, and
// compares it all.
func (k *keeper) finish(ctx context.Context) error {
	if err := k.crowd.Settle(ctx); err != nil {
		k.crowd.Blame("%v", err)
	}
	k.crowd.Again(ctx, 1<<30)
	if err := k.now.Load().drained(); err != nil {
		k.crowd.Blame("SIGTERM: %v", err)
	}
	said, err := os.ReadFile(filepath.Join(k.dir, logFile))
	if err != nil {
		return err
	}
	for _, bad := range []string{"DATA RACE", "panic", "fatal error"} {
		if i := strings.Index(string(said), bad); i >= 0 {
			k.crowd.Blame("a server said: %.2000s", said[i:])
		}
	}
	return k.compare(ctx, filepath.Join(k.dir, "data"), true)
}
