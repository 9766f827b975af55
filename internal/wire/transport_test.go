package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestACancelledRequestOnAConnectionIsNotAnswered(t *testing.T) {
	for _, id := range []string{`"a"`, "7", "9007199254740993"} {
		fake := newFake()
		c, _ := newStdio(t, fake, 0)
		c.write(t, call(id, "block", "{}"))
		<-fake.entered
		c.write(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
		if cause := <-fake.ended; !errors.Is(cause, errCancelled) {
			t.Errorf("cause %v", cause)
		}
		c.write(t, call("8", "echo", "{}"))
		if got := c.read(t); !strings.Contains(got, `"id":8,`) {
			t.Errorf("got %s", got)
		}
	}
}

// case S107
func TestTheEndOfTheInputEndsRequestsAndThenTheSession(t *testing.T) {
	fake := newFake()
	c, session := newStdio(t, fake, 0)
	c.write(t, call("1", "block", "{}"))
	<-fake.entered
	c.in.Close()
	if cause := <-fake.ended; !errors.Is(cause, io.EOF) {
		t.Errorf("cause %v", cause)
	}
	if err := session.Wait(); err != nil {
		t.Errorf("Wait: %v", err)
	}
}

func TestClosingTheSessionEndsRequests(t *testing.T) {
	fake := newFake()
	c, session := newStdio(t, fake, 0)
	c.write(t, call("1", "block", "{}"))
	<-fake.entered
	closed := make(chan error)
	go func() { closed <- session.Close() }()
	<-fake.ended
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestAnIDInUseIsRefused(t *testing.T) {
	fake := newFake()
	c, _ := newStdio(t, fake, 0)
	c.write(t, call("1", "block", "{}"))
	<-fake.entered
	c.write(t, call("1", "echo", "{}"))
	if got := c.read(t); !strings.Contains(got, "-32600") {
		t.Errorf("got %s", got)
	}
	close(fake.release)
	if got := c.read(t); !strings.Contains(got, `"result"`) {
		t.Errorf("got %s", got)
	}
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	fake := newFake()
	ours, theirs := mcp.NewInMemoryTransports()
	wrapped := NewTransport(ours, fake, TransportOptions{Limits: Limits{InFlight: 2}})
	session, err := newSDKServer().Connect(context.Background(), wrapped, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := theirs.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := memoryCarrier{client}
	for _, id := range []string{"1", "2"} {
		c.exchange(t, exchange{request: call(id, "block", "{}")})
		<-fake.entered
	}
	got := c.exchange(t, exchange{request: call("3", "echo", "{}"), messages: []string{""}})
	if !strings.Contains(got[0], "Limits.InFlight") {
		t.Errorf("got %s", got)
	}
	client.Close()
	_ = session.Wait()
}

func TestAClientMaySendBeforeItReads(t *testing.T) {
	c := newMemoryCarrier(t).(memoryCarrier)
	for _, id := range []string{"1", "2", "3"} {
		c.exchange(t, exchange{request: call(id, "", "{}")}) // refused
		c.exchange(t, exchange{request: call(id+"0", "echo", "{}")})
	}
	got := c.exchange(t, exchange{request: call("4", "echo", "{}"), messages: make([]string, 7)})
	if len(got) != 7 {
		t.Errorf("got %s", got)
	}
}

// case S108
func TestFiftyParallelCallsOnStdio(t *testing.T) {
	const n = 50
	c, _ := newStdio(t, newFake(), 0)
	go func() {
		for i := range n {
			tool := []string{"echo", "notify", "sdk_tool"}[i%3]
			if _, err := io.WriteString(c.in, call(fmt.Sprint(i), tool, `{"pad":"`+strings.Repeat("x", 10_000)+`"}`)+"\n"); err != nil {
				t.Error(err)
			}
		}
	}()
	answered := map[string]bool{}
	for len(answered) < n {
		m := decode(t, c.read(t)).(map[string]any)
		if id, ok := m["id"]; ok {
			if m["result"] == nil {
				t.Errorf("got %v", m)
			}
			answered[fmt.Sprint(id)] = true
		}
	}
}

// case S104
func TestLongLinesWorkUpToTheLimitAndCostOneErrorBeyond(t *testing.T) {
	c, _ := newStdio(t, newFake(), 2<<20)
	for _, size := range []int{64<<10 + 1, 1<<20 - 100, 3 << 20} {
		go io.WriteString(c.in, call("1", "sdk_tool", `{"pad":"`+strings.Repeat("x", size)+`"}`)+"\n")
		got := c.read(t)
		if size < 2<<20 && !strings.Contains(got, "from the SDK") {
			t.Errorf("%d bytes: got %.200s", size, got)
		}
		if size > 2<<20 && !(strings.Contains(got, "BodyBytes") && strings.Contains(got, "-32600")) {
			t.Errorf("%d bytes: got %.200s", size, got)
		}
	}
	c.write(t, call("2", "echo", "{}"))
	if got := c.read(t); !strings.Contains(got, `"id":2,`) {
		t.Errorf("after it: got %s", got)
	}
}

func TestALongLastLineCostsItsErrorToo(t *testing.T) {
	out := &said{}
	conn, err := Stdio(&pieces{[]byte(strings.Repeat("x", 300)), 7}, out, Limits{BodyBytes: 200}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(t.Context()); !errors.Is(err, io.EOF) || len(out.lines) != 1 || !strings.Contains(out.lines[0], "BodyBytes") {
		t.Errorf("got %q, %v", out.lines, err)
	}
}

func TestEmptyLinesAndCarriageReturnsAreNothing(t *testing.T) {
	c, _ := newStdio(t, newFake(), 0)
	c.write(t, "")
	c.write(t, " \r")
	c.write(t, call("1", "echo", "{}")+"\r")
	if got := c.read(t); !strings.Contains(got, `"id":1,`) {
		t.Errorf("got %s", got)
	}
}

func TestDeepNestingOnStdioCostsOneError(t *testing.T) {
	c, _ := newStdio(t, newFake(), 0)
	for depth, code := range map[int]string{100: "-32602", 5_000: "-32602", 200_000: "-32700"} {
		go io.WriteString(c.in, call("1", "sdk_tool", `{"a":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+`}`)+"\n")
		if got := c.read(t); !strings.Contains(got, code) {
			t.Errorf("depth %d: got %s", depth, got)
		}
	}
}

func TestASessionOfThe2025EraPassesThrough(t *testing.T) {
	c, _ := newStdio(t, newFake(), 0)
	for _, e := range []struct{ send, want string }{
		{initialize, `"protocolVersion":"2025-11-25"`},
		{legacyCall, "from the SDK"},
		{`{"jsonrpc":"2.0","id":3,"method":"ping"}`, `"id":3`},
		{strings.Replace(legacyCall, `"a":1`, `"a":1,"a":2`, 1), "-32602"},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, `"id":9007199254740993,`},
	} {
		c.write(t, e.send)
		if got := c.read(t); !strings.Contains(got, e.want) {
			t.Errorf("%s\n got %s", e.send, got)
		}
	}
}
