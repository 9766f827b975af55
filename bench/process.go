package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

// What a process of ours is to serve, and where it keeps it.
const (
	roleVariable   = "TALLYSTICK_BENCH_SERVE"
	folderVariable = "TALLYSTICK_BENCH_FOLDER"
	// Where to put a profile of each server, if anywhere.
	profileVariable = "TALLYSTICK_BENCH_PROFILE"
)

func serving() bool { return os.Getenv(roleVariable) != "" }

// A process is a server under measurement.
type process struct {
	address string
	cmd     *exec.Cmd
	lines   *bufio.Scanner // what it prints after that
	in      io.Closer      // it ends when this is closed
}

// launch runs this program again as a server.
func launch(role, folder string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role, folderVariable+"="+folder)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	return p, p.cmd.Start()
}

// start is launch, and waits until the server serves.
func start(role, folder string) (*process, error) {
	p, err := launch(role, folder)
	if err != nil {
		return nil, err
	}
	if p.address, err = p.next("listening "); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", role, err), p.kill())
	}
	return p, nil
}

// next waits for a line that begins so, and returns the rest of it.
func (p *process) next(begin string) (string, error) {
	for p.lines.Scan() {
		if rest, ok := strings.CutPrefix(p.lines.Text(), begin); ok {
			return rest, nil
		}
	}
	return "", errors.Join(fmt.Errorf("the server ended without saying %q", begin), p.lines.Err())
}

func (p *process) kill() error {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	_ = p.cmd.Wait()         // killed
	return nil
}

// stop lets the server end by itself.
func (p *process) stop() error {
	_ = p.in.Close()
	return p.cmd.Wait()
}

// A usage is what a server says of itself.
type usage struct {
	CPU        time.Duration `json:"cpu"`
	Heap       uint64        `json:"heap"` // live bytes, after a collection
	Goroutines int           `json:"goroutines"`
}

// usage asks a server what it uses; exact collects its garbage first.
func (p *process) usage(exact bool) (usage, error) {
	var u usage
	resp, err := http.Get(fmt.Sprintf("http://%s/usage?exact=%t", p.address, exact))
	if err != nil {
		return u, err
	}
	defer resp.Body.Close()
	return u, json.NewDecoder(resp.Body).Decode(&u)
}

func (p *process) cpu() (time.Duration, error) {
	u, err := p.usage(false)
	return u.CPU, err
}

func tellUsage(w http.ResponseWriter, r *http.Request) {
	u := usage{CPU: ownCPU(), Goroutines: runtime.NumGoroutine()}
	if r.FormValue("exact") == "true" {
		runtime.GC()
		runtime.GC() // what the first one put into pools' second halves
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		u.Heap = m.HeapAlloc + m.StackInuse
	}
	_ = json.NewEncoder(w).Encode(u) // whoever asked and has gone does not want it
}

// serve is the whole life of a server process.
func serve() {
	if err := serveRole(os.Getenv(roleVariable), os.Getenv(folderVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "bench server:", err)
		os.Exit(1)
	}
}

func serveRole(role, folder string) error {
	open, ok := roles[role]
	if !ok {
		return fmt.Errorf("unknown role %q", role)
	}
	profiled, err := profile(os.Getenv(profileVariable), role)
	if err != nil {
		return err
	}
	mcp, stop, err := open(folder)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp)
	mux.HandleFunc("/usage", tellUsage)
	web := &http.Server{Handler: mux} // no timeouts: connections wait for their turn
	served := inBackground(func() error { return web.Serve(l) })
	fmt.Println("listening", l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin) // until whoever started this lets go
	err = errors.Join(profiled(), stop(), web.Close())
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// profile writes down where this process spends its time, until it is told to
// stop.
func profile(folder, role string) (stop func() error, err error) {
	if folder == "" {
		return func() error { return nil }, nil
	}
	name := func(kind string) string {
		return filepath.Join(folder, fmt.Sprintf("%s-%d.%s.pprof", role, os.Getpid(), kind))
	}
	f, err := os.Create(name("cpu"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		allocs, err := os.Create(name("allocs"))
		if err != nil {
			return err
		}
		return errors.Join(f.Close(), pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
	}, nil
}

func inBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}
