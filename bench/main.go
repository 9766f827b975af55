// Command bench measures what the safety costs: each figure beside its baseline,
// in one run, in turns, so that the ratios hold although the machine's speed
// changes.
//
//	go run ./bench                  all figures, as a Markdown table
//	go run ./bench -only greet      one of them
//	go run ./bench -quick           a short look, not to be quoted
//
// Each server is a process of its own on 127.0.0.1, and this process is their
// 32 clients. All share the same processors: pin them to two with taskset if
// there are more. docs/performance.md says how to read the table.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A figure measures one thing and gives its lines of the table.
type figure struct {
	name string
	run  func(b *bench) ([]row, error)
}

// figures in the order of the table.
var figures = []figure{
	{"greet", greet},
	{"approval", approval},
	{"get", taskGet},
	{"task", taskLife},
	{"seal", sealing},
	{"stored", stored},
	{"waiting", waiting},
	{"listen", listening},
	{"kill", killed},
	{"driven", driven},
	{"watched", watched},
}

// A row is a line of the table.
type row struct {
	figure, ours, baseline, ratio, aim, cpu string
}

// A bench is one run of this command.
type bench struct {
	size   size
	folder string // for what the servers keep
	log    io.Writer
}

// A size says how much is measured.
type size struct {
	clients int
	rounds  int           // counted ones; one more comes before
	length  time.Duration // of a round
	batch   int           // tasks of a round
	few     int           // stored calls to compare with
	many    int           // stored calls
	waiting int           // waiting calls
	changes int           // to tasks that are listened to
	kills   int
	watched int           // tasks that one client watches
	look    time.Duration // how long it is looked at while it does
}

var (
	full  = size{clients: 32, rounds: 9, length: 2 * time.Second, batch: 4000, few: 1000, many: 1_000_000, waiting: 100_000, changes: 1600, kills: 50, watched: 10_000, look: 20 * time.Second}
	quick = size{clients: 4, rounds: 1, length: 30 * time.Millisecond, batch: 20, few: 10, many: 100, waiting: 50, changes: 8, kills: 2, watched: 20, look: 100 * time.Millisecond}
)

func main() {
	if serving() {
		serve()
		return
	}
	only := flag.String("only", "", "measure these `figures` only, with commas between: "+names())
	short := flag.Bool("quick", false, "a short look, not to be quoted")
	profiles := flag.String("profile", "", "write profiles of the servers into this `folder`")
	flag.Parse()
	if *profiles != "" {
		if err := os.Setenv(profileVariable, *profiles); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
	s := full
	if *short {
		s = quick
	}
	rows, err := measure(s, *only, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Printf("%s, %s/%s, %d processors, %s. %d clients.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), s.clients)
	write(os.Stdout, rows)
}

func names() string {
	var all []string
	for _, f := range figures {
		all = append(all, f.name)
	}
	return strings.Join(all, ", ")
}

// measure runs the figures named, or all.
func measure(s size, only string, log io.Writer) ([]row, error) {
	folder, err := os.MkdirTemp("", "tallystick-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	b := &bench{size: s, folder: folder, log: log}
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if only != "" && !slices.ContainsFunc(figures, func(f figure) bool { return f.name == name }) {
			return nil, fmt.Errorf("no figure is called %q; there are %s", name, names())
		}
	}
	var rows []row
	for _, f := range figures {
		if only != "" && !slices.Contains(wanted, f.name) {
			continue
		}
		fmt.Fprintf(log, "%s …\n", f.name)
		found, err := f.run(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

func write(w io.Writer, rows []row) {
	fmt.Fprintln(w, "| figure | measured | baseline | ratio | aim | CPU of the server, per request |\n|---|---|---|---|---|---|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", r.figure, r.ours,
			cmp.Or(r.baseline, "-"), cmp.Or(r.ratio, "-"), cmp.Or(r.aim, "-"), cmp.Or(r.cpu, "-"))
	}
}
