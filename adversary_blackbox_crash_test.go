package tallystick_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/embedded"
	"github.com/tallystick/tallystick/store/sqlite"
)

// bazaarFolder and bazaarFar are the folder and the far side of a child
// process, which is this test binary.
const (
	bazaarFolder = "TALLYSTICK_BAZAAR_FOLDER"
	bazaarFar    = "TALLYSTICK_BAZAAR_FAR"
)

// TestBazaarChild is the child. It serves until it is killed, or its standard
// input ends.
func TestBazaarChild(t *testing.T) {
	folder := os.Getenv(bazaarFolder)
	if folder == "" {
		return // it is no child
	}
	d := &desk{t: t, sdk: mcp.NewServer(&mcp.Implementation{Name: "bazaar", Version: "1"}, nil), clock: &clock{}, log: &bytes.Buffer{}}
	opts := bazaarOptions(nil)
	s, err := embedded.Open(folder, d.sdk, &opts)
	if err != nil {
		t.Fatal(err)
	}
	d.srv = s.Server
	addBazaar(d.srv, faraway{os.Getenv(bazaarFar)})
	d.serve()
	page := approvals(d.srv)
	fmt.Printf("serving %s %s\n", d.url, page.URL)
	for b := bufio.NewReader(os.Stdin); ; {
		if _, err := b.ReadByte(); err != nil {
			break
		}
	}
	page.Close()
	d.stop()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A bazaarChild is a process that serves.
type bazaarChild struct {
	cmd  *exec.Cmd
	quit func() error
	out  *lockedWriter
}

func (c *crowd) spawn(folder, far string) *bazaarChild {
	c.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBazaarChild$")
	cmd.Env = append(os.Environ(), bazaarFolder+"="+folder, bazaarFar+"="+far)
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	said := &bytes.Buffer{}
	b := &bazaarChild{cmd: cmd, quit: in.Close, out: &lockedWriter{w: said}}
	cmd.Stderr = b.out
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "serving" {
			c.desk.Store(&desk{t: c.t, url: f[1]})
			c.page.Store(&f[2])
			go func() { // the pipe ends with the process
				for lines.Scan() {
					fmt.Fprintln(b.out, lines.Text())
				}
			}()
			return b
		}
		fmt.Fprintln(b.out, lines.Text())
	}
	c.t.Fatalf("the child did not serve: %s", said)
	return nil
}

// kill ends the child as a crash does.
func (b *bazaarChild) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// stun stops the child for longer than its leases last.
func (b *bazaarChild) stun() {
	_ = b.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(1500 * time.Millisecond)
	_ = b.cmd.Process.Signal(syscall.SIGCONT)
}

// The server is killed at random moments, or stops and goes on after its leases
// have ended. The crowd goes on with what it has.
func TestACrowdSurvivesCrashes(t *testing.T) {
	seed := bazaarSeed(t)
	r := rand.New(rand.NewPCG(seed, 3))
	c := newCrowd(t, newFarSide(seed))
	c.crashes = true
	far := httptest.NewServer(c.far)
	defer far.Close()
	folder := filepath.Join(t.TempDir(), "bazaar")
	child := c.spawn(folder, far.URL)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { c.wander(ctx, seed+uint64(i)) })
	}
	kills, stuns := 0, 0
	for end := time.Now().Add(bazaarTime(time.Second)); time.Now().Before(end) || kills == 0; {
		time.Sleep(time.Duration(100+r.IntN(1500)) * time.Millisecond)
		if r.IntN(4) == 0 {
			stuns++
			child.stun()
			continue
		}
		kills++
		child.kill()
		child = c.spawn(folder, far.URL)
	}
	cancel()
	wg.Wait()
	for range 20 { // what is held, an operator looks at
		time.Sleep(100 * time.Millisecond)
		c.resolve(context.Background(), nil)
	}
	c.rewatch()
	_ = child.quit()
	if err := child.cmd.Wait(); err != nil {
		t.Errorf("the child: %v", err)
	}
	t.Logf("killed %d times, stunned %d times", kills, stuns)
	path := filepath.Join(folder, embedded.StoreFile)
	sound(t, path)
	db, err := sqlite.Open(context.Background(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c.settle(db)
	c.check(db)
}

// rewatch asks for every task once more.
func (c *crowd) rewatch() {
	for _, t := range c.tasks {
		t.c.d = c.desk.Load()
		c.get(context.Background(), t)
	}
}
