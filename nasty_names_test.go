//lint:file-ignore SA1019 sampling and roots are deprecated with revision 2026-07-28, and supported

package tallystick_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/internal/wire"
)

// A sender sends a message as it is, and returns what comes back as one line.
type sender func(t *testing.T, body string) string

// sendHTTP sends with the headers that a right message has.
func sendHTTP(d *desk, tool string) sender { return sendAs(d.url, "tools/call", tool) }

func sendAs(url, method, name string) sender {
	return func(t *testing.T, body string) string {
		t.Helper()
		req, err := http.NewRequest("POST", url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for header, v := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer ann/acme",
			"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
		} {
			req.Header.Set(header, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 500 {
			t.Fatalf("%d %s, %v", resp.StatusCode, raw, err)
		}
		if _, data, ok := bytes.Cut(raw, []byte("data: ")); ok {
			raw = data
		}
		return string(raw)
	}
}

func sendStdio(t *testing.T, d *desk) sender {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ss, err := d.sdk.Connect(context.Background(), d.srv.Transport(wire.Stdio(toServer, fromServer, wire.Limits{BodyBytes: 40 << 20, ResultBytes: 16 << 20})), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReaderSize(toClient, 1<<20)
	t.Cleanup(func() { fromClient.Close(); _ = ss.Wait(); toClient.Close() })
	return func(t *testing.T, body string) string {
		t.Helper()
		go io.WriteString(fromClient, body+"\n")
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
}

const metaOfNasty = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// toolCall is a call whose arguments and further params are as given.
func toolCall(tool, arguments, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"%s","arguments":%s%s,%s}}`, tool, arguments, more, metaOfNasty)
}

func stateIn(t *testing.T, line string) string {
	t.Helper()
	var m struct{ Result struct{ RequestState string } }
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Result.RequestState == "" {
		t.Fatalf("no state: %s", line)
	}
	return m.Result.RequestState
}

// Names that differ in case, come twice or go on behind a NUL, texts that are no
// Unicode, and nesting: at each level of a message that says yes, the message is
// refused, nothing of it is taken, and the right one is taken afterwards, once.
func TestAMessageThatReadersDisagreeAboutTakesNothing(t *testing.T) {
	const yes = `"approve":{"action":"accept","content":{"confirm":true}}`
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	rows := []struct{ what, right, nasty, http, stdio string }{
		{"folded method", `"method":`, `"Method":"ping","method":`, "-32600", ""},
		{"folded jsonrpc", `"jsonrpc":`, `"JSONRPC":"1.0","jsonrpc":`, "-32600", ""},
		{"duplicate id", `"id":7`, `"id":7,"\u0069d":8`, "-32600", ""},
		{"duplicate params", `"params":`, `"params":{},"params":`, "-32600", ""},
		{"folded name", `"name":`, `"Name":"x","name":`, "-32602", ""},
		{"duplicate name", `"name":`, `"name":"x","n\u0061me":`, "-32602", ""},
		{"folded state", `"requestState":`, `"requeststate":"x","requestState":`, "-32602", ""},
		{"folded answers", `"inputResponses":`, `"inputResponse\u017f":{},"inputResponses":`, "-32602", ""},
		{"folded _meta", `"_meta":`, `"_META":{},"_meta":`, "-32602", ""},
		{"folded in _meta", `"_meta":{`, `"_meta":{"IO.modelcontextprotocol/protocolVersion":"x",`, "-32602", ""},
		{"duplicate in _meta", `"_meta":{`, `"_meta":{"k":1,"\u006b":2,`, "-32602", ""},
		{"folded argument", `"orderId":`, `"OrderId":"z","orderId":`, "-32602", ""},
		{"an argument in small letters", `"orderId":`, `"orderid":"z","orderId":`, "-32602", ""},
		{"duplicate argument", `"orderId":`, `"orderId":"z","order\u0049d":`, "-32602", ""},
		{"duplicate answer", `"approve":`, `"approve":{"action":"decline"},"appr\u006fve":`, "-32602", ""},
		{"duplicate action", `"action":`, `"action":"decline","\u0061ction":`, "-32602", ""},
		{"folded action", `"action":`, `"Action":`, "-32602", ""},
		{"folded content", `"content":`, `"Content":`, "-32602", ""},
		{"duplicate in content", `"confirm":`, `"confirm":false,"c\u006fnfirm":`, "-32602", ""},
		{"folded in content", `"confirm":`, `"Confirm":`, "-32602", ""},
		{"NUL behind a name in content", `"confirm":`, `"confirm\u0000":`, "-32602", ""},
		{"NUL behind an action", `"accept"`, `"accept\u0000"`, "-32602", ""},
		{"NUL behind a method", `tools/call`, `tools/call\u0000`, "-32020", "-32601"},
		{"NUL behind a tool", `"refund"`, `"refund\u0000"`, "-32020", "-32602"},
		{"NUL behind an argument", `"orderId":`, `"orderId\u0000":`, "isError", ""},
		{"NUL behind a value", `"orderId":"`, `"orderId":"\u0000`, "-32602", ""},
		{"a NUL within", `"id":7`, "\"id\":7\x00", "-32700", ""},
		{"a lone surrogate as id", `"id":7`, `"id":"\ud800"`, "-32700", ""},
		{"a lone surrogate in a name", `"orderId":`, `"\udc00":1,"orderId":`, "-32700", ""},
		{"a lone surrogate in an argument", `"orderId":"`, `"orderId":"\ud800`, "-32700", ""},
		{"a lone surrogate in an answer", `"confirm":`, `"x":"\ud83d","confirm":`, "-32700", ""},
		{"a surrogate in UTF-8", `"orderId":"`, "\"orderId\":\"\xed\xa0\x80", "-32700", ""},
		{"overlong UTF-8", `"confirm":`, "\"x\":\"\xc0\x80\",\"confirm\":", "-32700", ""},
		{"a byte order mark", `{"jsonrpc"`, "\xef\xbb\xbf{\"jsonrpc\"", "-32700", ""},
		{"65 levels of arguments", `"orderId":`, `"x":` + deep(62) + `,"orderId":`, "-32602", ""},
		{"65 levels of an answer", `"confirm":`, `"x":` + deep(60) + `,"confirm":`, "-32602", ""},
		{"200,000 levels", `"confirm":`, `"x":` + deep(200_000) + `,"confirm":`, "-32", ""},
	}
	sh := &shop{total: "1 EUR"}
	d := newDesk(t, setup{tools: func(d *desk) { sh.addRefund(d, tallystick.Who{}) }})
	order := 0
	for way, send := range map[string]sender{"http": sendHTTP(d, "refund"), "stdio": sendStdio(t, d)} {
		for _, row := range rows {
			order++
			arguments := fmt.Sprintf(`{"orderId":"%d"}`, order)
			state := stateIn(t, send(t, toolCall("refund", arguments, "")))
			right := toolCall("refund", arguments, `,"requestState":"`+state+`","inputResponses":{`+yes+`}`)
			before := sh.refunds.Load()
			nasty := strings.Replace(right, row.right, row.nasty, 1)
			if nasty == right {
				t.Fatalf("%s: nothing is nasty", row.what)
			}
			want := row.http
			if way == "stdio" && row.stdio != "" {
				want = row.stdio
			}
			if got := send(t, nasty); !strings.Contains(got, want) || sh.refunds.Load() != before {
				t.Errorf("%s, %s: want %s, got %.300s (%d refunds)", way, row.what, want, got, sh.refunds.Load()-before)
			}
			for range 2 {
				if got := send(t, right); strings.Contains(got, `"error"`) || strings.Contains(got, "isError") || sh.refunds.Load() != before+1 {
					t.Errorf("%s, after %s: %.300s (%d refunds)", way, row.what, got, sh.refunds.Load()-before)
				}
			}
		}
	}
}

// 64 levels are taken, wherever they are.
func TestSixtyFourLevelsAreTaken(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) {
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "any"}, nil, func(_ context.Context, _ *tallystick.Call, in map[string]any) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
	}})
	for way, send := range map[string]sender{"http": sendHTTP(d, "any"), "stdio": sendStdio(t, d)} {
		for n, want := range map[int]string{60: `"result"`, 61: `"result"`, 62: "Limits.Nesting", 200_000: `"error"`} { // three are around them
			if got := send(t, toolCall("any", `{"a":`+strings.Repeat("[", n)+strings.Repeat("]", n)+`}`, "")); !strings.Contains(got, want) || strings.Contains(got, "isError") {
				t.Errorf("%s, %d: %.300s", way, n+3, got)
			}
		}
	}
}

// 10^24 is 1e24 however it is written, and no other number; a handler that takes
// whole numbers of 64 bits gets none that is not one.
func TestATrillionTrillionIsExactlyThat(t *testing.T) {
	var ran atomic.Int64
	d := newDesk(t, setup{tools: func(d *desk) {
		ask := func(call *tallystick.Call) (*mcp.CallToolResult, any, error) {
			if err := confirm(call, "go", tallystick.Who{}); err != nil {
				return nil, nil, err
			}
			ran.Add(1)
			return nil, nil, nil
		}
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "any"}, nil, func(_ context.Context, call *tallystick.Call, in map[string]any) (*mcp.CallToolResult, any, error) {
			return ask(call)
		})
		tallystick.AddTool(d.srv, &mcp.Tool{Name: "whole"}, nil, func(_ context.Context, call *tallystick.Call, in struct {
			N int64 `json:"n"`
		}) (*mcp.CallToolResult, any, error) {
			return ask(call)
		})
	}})
	const answer = `,"inputResponses":{"go":{"action":"accept","content":{"confirm":true}}}`
	for way, peers := range map[string][2]sender{"http": {sendHTTP(d, "any"), sendHTTP(d, "whole")}, "stdio": {sendStdio(t, d), sendStdio(t, d)}} {
		for asked, others := range map[string]struct{ same, not []string }{
			"1e24":             {[]string{"1000000000000000000000000", "10.0E+23"}, []string{"1000000000000000000000001", "999999999999999999999999", "1e25", `"1e24"`}},
			"9007199254740993": {[]string{"9007199254740993.0", "900719925474099.3e1"}, []string{"9007199254740992", "9007199254740994", "-9007199254740993"}},
			"-0":               {[]string{"0", "0.00", "0e7"}, []string{"1e-9", "null", "false"}},
		} {
			n := func(v string) string { return `{"n":` + v + `}` }
			state := `,"requestState":"` + stateIn(t, peers[0](t, toolCall("any", n(asked), ""))) + `"`
			for _, v := range others.not {
				if got := peers[0](t, toolCall("any", n(v), state+answer)); !strings.Contains(got, "invalid_request_state") {
					t.Errorf("%s: %s for %s: %.300s", way, v, asked, got)
				}
			}
			before := ran.Load()
			for _, v := range others.same {
				if got := peers[0](t, toolCall("any", n(v), state+answer)); !strings.Contains(got, `"complete"`) || ran.Load() != before+1 {
					t.Errorf("%s: %s for %s: %.300s", way, v, asked, got)
				}
			}
		}
		for _, v := range []string{"1e24", "1000000000000000000000000", "9223372036854775808", "1.5", "1e400", "1e-400", strings.Repeat("9", 5000)} {
			if got := peers[1](t, toolCall("whole", `{"n":`+v+`}`, "")); strings.Contains(got, "requestState") || !strings.Contains(got, "isError") && !strings.Contains(got, `"error"`) {
				t.Errorf("%s: %.40s as an int64: %.300s", way, v, got)
			}
		}
		if got := peers[1](t, toolCall("whole", `{"n":9007199254740993}`, "")); !strings.Contains(got, "requestState") {
			t.Errorf("%s: %.300s", way, got)
		}
	}
}

// Roots in another case are none: what is checked is what the handler gets.
func TestRootsInAnotherCaseAreNone(t *testing.T) {
	got := make(chan string, 8)
	d := newDesk(t, setup{tools: func(d *desk) {
		d.tool("where", nil, func(_ context.Context, call *tallystick.Call) (string, error) {
			r, err := call.Input(tallystick.Question{Key: "roots"}, &mcp.ListRootsParams{})
			if err != nil {
				return "", err
			}
			raw, err := json.Marshal(r)
			got <- string(raw)
			return "done", err
		})
	}})
	for way, send := range map[string]sender{"http": sendHTTP(d, "where"), "stdio": sendStdio(t, d)} {
		for _, roots := range []string{`{"roots":[],"Roots":[{"uri":"https://evil.example"}]}`, `{"roots":[{"uri":"file:///a","URI":"https://evil.example"}]}`} {
			state := stateIn(t, send(t, toolCall("where", "{}", "")))
			answer := send(t, toolCall("where", "{}", `,"requestState":"`+state+`","inputResponses":{"roots":`+roots+`}`))
			if !strings.Contains(answer, "done") {
				t.Fatalf("%s, %s: %s", way, roots, answer)
			}
			if handed := <-got; strings.Contains(handed, "evil") {
				t.Errorf("%s: the handler got %s", way, handed)
			}
		}
	}
}
