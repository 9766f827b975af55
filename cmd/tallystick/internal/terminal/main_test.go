package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

// asks is the variable that makes the test binary a program that asks: it names
// a file of the questions, as JSON. An interrupt from outside ends the question
// that is open; without any questions it shows the progress until then.
const asks = "TALLYSTICK_TERMINAL_ASKS"

// slowly is the variable that makes it wait before each question, until the file
// of its number is in the folder named. It shows no progress then.
const slowly = "TALLYSTICK_TERMINAL_SLOWLY"

// late is the variable that has the keys read later than a page is shown, as on
// a busy machine.
const late = "TALLYSTICK_TERMINAL_LATE"

type lateReader struct{ *os.File }

func (l lateReader) Read(p []byte) (int, error) {
	time.Sleep(3 * quiet)
	return l.File.Read(p)
}

func TestMain(m *testing.M) {
	if file := os.Getenv(asks); file != "" {
		os.Exit(program(file))
	}
	os.Exit(m.Run())
}

func program(file string) int {
	var questions []client.Question
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &questions)
	}
	if err != nil {
		fmt.Println(err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	screen := NewScreen(os.Stderr)
	in := io.Reader(os.Stdin)
	if os.Getenv(late) != "" {
		in = lateReader{os.Stdin}
	}
	asker := New(Options{
		Screen:    screen,
		In:        in,
		Where:     func(string) string { return "https://desk.example:8443/mcp" },
		Open:      func(address string) error { fmt.Println("OPEN", address); return nil },
		Interrupt: func() { screen.Say("CANCEL") },
	})
	var watching sync.WaitGroup
	answered, stopWatching := context.WithCancel(ctx)
	watching.Go(func() { // the call's progress, which forms hide
		redraw := time.NewTicker(20 * time.Millisecond)
		defer redraw.Stop()
		for answered.Err() == nil && os.Getenv(slowly) == "" {
			screen.Show(client.Status{ID: "call-1", State: client.InputRequired, Message: "waiting for you"}, time.Now())
			select {
			case <-redraw.C:
			case <-answered.Done():
			}
		}
	})
	for i, q := range questions {
		if dir := os.Getenv(slowly); dir != "" {
			screen.Say("NEXT %d", i)
			for file := filepath.Join(dir, strconv.Itoa(i)); ; time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(file); err == nil {
					break
				}
			}
		}
		a, err := asker.Answer(ctx, q)
		switch {
		case errors.Is(err, client.ErrNoAnswer):
			screen.Say("RESULT none")
		case err != nil:
			screen.Say("RESULT %v", err)
		default:
			screen.Say("RESULT %s %s", a.Action, a.Content)
		}
	}
	if len(questions) == 0 {
		<-ctx.Done()
	}
	stopWatching()
	watching.Wait()
	screen.Clear()
	screen.Say("END")
	return 0
}
