package tour

import (
	"slices"
	"testing"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/desk"
)

func TestRepliesInShort(t *testing.T) {
	tests := []struct{ name, contentType, body, want string }{
		{"a result", "application/json", `{"result":{"resultType":"complete","content":[{"type":"text","text":"done"}]}}`, "complete done"},
		{"an error of a tool", "application/json", `{"result":{"resultType":"complete","isError":true,"content":[{"type":"text","text":"no"}],"_meta":{"tallystick/outcome":"declined"}}}`, "complete isError (declined) no"},
		{"a question", "application/json", `{"result":{"resultType":"input_required","inputRequests":{"approve":{"params":{"message":"Go?"}}}}}`, `input_required approve "Go?"`},
		{"a task", "application/json", `{"result":{"resultType":"task","taskId":"ABCDEFGH","status":"working"}}`, "task ABCDEF… working"},
		{"a task's end", "application/json", `{"result":{"resultType":"complete","taskId":"ABCDEFGH","status":"completed","result":{"content":[{"type":"text","text":"done"}]}}}`, "completed complete done"},
		{"an error", "application/json", `{"error":{"code":-32602,"message":"no","data":{"reason":"why"}}}`, `error -32602 "no" why`},
		{"the last of a stream", "text/event-stream", "data: {\"method\":\"x\"}\n\ndata: {\"result\":{\"content\":[{\"text\":\"last\"}]}}\n\n", "complete last"},
		{"text that steers a terminal", "application/json", `{"result":{"content":[{"text":"a\u001b[2Jb"}]}}`, `complete a\x1b[2Jb`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := readReply(tt.contentType, []byte(tt.body))
			if err != nil || r.String() != tt.want {
				t.Errorf("%q, %v; want %q", r.String(), err, tt.want)
			}
		})
	}
	if _, err := readReply("text/plain", []byte("<html>")); err == nil {
		t.Error("HTML was read as a reply")
	}
}

func TestRequestsInShort(t *testing.T) {
	const body = `{"method":"tools/call","params":{"name":"refund","arguments":{"orderId":"A"},"requestState":"ts1.ABCDEFG","inputResponses":{"approve":{"action":"accept","content":{}}}}}`
	if got, want := described([]byte(body)), `tools/call refund {"orderId":"A"} + state ts1.ABCD… + approve: accept`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFoldingMovesNothingPastACrash(t *testing.T) {
	start := func(part string) desk.AuditLine {
		return desk.AuditLine{Event: "effect started", Effect: "write [" + part + "]", Channel: "run"}
	}
	got := fold([]desk.AuditLine{
		{Event: "taken", Channel: "system"}, start("1"), start("2"), {Event: "stopped", Channel: "system"}, start("2"),
	})
	for i := range got {
		got[i] = got[i][len("15:04:05.000  "):]
	}
	want := []string{"system          taken", "run             effect started write [1] … and 1 more like it", "system          stopped", "run             effect started write [2]"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhatIsNotSoFailsTheWalk(t *testing.T) {
	var out discard
	w := &tour{printer: &printer{w: &out}}
	w.check(true, "so")
	if w.failed {
		t.Error("what is so fails the walk")
	}
	w.check(false, "so")
	w.check(true, "so")
	if !w.failed {
		t.Error("what is not so is forgotten")
	}
}

type discard struct{}

func (*discard) Write(p []byte) (int, error) { return len(p), nil }
