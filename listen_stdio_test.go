package tallystick_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/wire"
)

// Over stdio, byte by byte: a listen between other requests, its ids as they
// came, an answer, the end, and the farewell before the output ends.
func TestAListenOverStdio(t *testing.T) {
	d := newDesk(t, setup{tools: jobs("job"), opts: tallystick.Options{AnonymousEffects: true}})
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	ss, err := d.sdk.Connect(context.Background(), d.srv.Transport(wire.Stdio(fromClient, toClient, wire.Limits{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &ear{t: t, msgs: make(chan heard, 100), done: make(chan struct{}), hang: func() { toServer.Close() }}
	go func() {
		defer close(e.done)
		for lines := bufio.NewScanner(fromServer); lines.Scan(); {
			var m heard
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				t.Errorf("%s: %v", lines.Bytes(), err)
			}
			e.msgs <- m
		}
	}()
	t.Cleanup(func() { toServer.Close(); ss.Close(); <-e.done })
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capsTasks + `}`
	send := func(format string, args ...any) {
		if _, err := fmt.Fprintf(toServer, format+"\n", args...); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"jsonrpc":"2.0","id":"create","method":"tools/call","params":{"name":"job",%s}}`, meta)
	id := e.next().Result["taskId"].(string)
	send(`{"jsonrpc":"2.0","id":12345678901234567890123,"method":"subscriptions/listen","params":{"notifications":{"taskIds":["%s","absent"]},%s}}`, id, meta)
	ack := e.next()
	if ack.Method != "notifications/subscriptions/acknowledged" || fmt.Sprint(ack.filter()["taskIds"]) != "["+id+"]" || fmt.Sprint(ack.id()) != "1.2345678901234568e+22" {
		t.Fatalf("acknowledged: %+v", ack)
	}
	e.until("input_required")
	send(`{"jsonrpc":"2.0","id":"answer","method":"tasks/update","params":{"taskId":"%s","inputResponses":{"go":{"action":"accept","content":{"confirm":true}}},%s}}`, id, meta)
	for acked, ended := false, false; !acked || !ended; {
		switch m := e.next(); {
		case m.Result != nil:
			acked = true
		case m.status() == "completed":
			ended = true
		case m.Method != "notifications/tasks":
			t.Fatalf("then: %+v", m)
		}
	}
	if err := ss.Close(); err != nil { // as on SIGTERM, before the server has drained
		t.Error(err)
	}
	e.goodbye("shutting down")
	e.closed()
}
