package shape

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	metaOf   = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}`
	stream   = `"_meta":{"io.modelcontextprotocol/subscriptionId":1}`
	taskOf   = `"taskId":"t1","createdAt":"2026-07-28T10:00:00.000Z","lastUpdatedAt":"2026-07-28T10:00:00.000Z","ttlMs":1000`
	inForm   = `"q":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"boolean"}}}}}`
	someText = `"content":[{"type":"text","text":"x"}]`
	tasksCap = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
)

// request is a valid request of a method.
func request(method string) string {
	params := ""
	switch {
	case strings.HasPrefix(method, "tasks/"):
		params = `"taskId":"t1","inputResponses":{},`
	case method == "resources/read":
		params = `"uri":"x:y",`
	case method == "subscriptions/listen":
		params = `"notifications":{},`
	case method == "tools/call", method == "prompts/get":
		params = `"name":"n",`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s}}}`, method, params, tasksCap)
}

func result(members ...string) string {
	return `{"jsonrpc":"2.0","id":1,"result":{` + strings.Join(members, ",") + `}}`
}

func failed(members string) string { return `{"jsonrpc":"2.0","id":1,"error":{` + members + `}}` }

func notice(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{%s}}`, method, params)
}

const (
	isComplete = `"resultType":"complete"`
	isAsking   = `"resultType":"input_required"`
	isTask     = `"resultType":"task"`
)

// Each message is right, and is wrong once one thing is added or changed.
var messages = []struct {
	method, right string
	wrong         map[string]string // what is wrong with it, and the message
}{
	{"tools/call", result(isComplete, metaOf, someText), map[string]string{
		"no resultType":     result(metaOf, someText),
		"no content":        result(isComplete, metaOf),
		"a task id":         result(isComplete, metaOf, someText, `"taskId":"t"`),
		"a state":           result(isComplete, metaOf, someText, `"requestState":"s"`),
		"text without text": result(isComplete, metaOf, `"content":[{"type":"text"}]`),
		"no serverInfo":     result(isComplete, `"_meta":{}`, someText),
		"an unknown word":   result(isComplete, `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"},"tallystick/outcome":"well"}`, someText),
		"another id":        `{"jsonrpc":"2.0","id":2,"result":{` + isComplete + `,` + metaOf + `,` + someText + `}}`,
		"another version":   `{"jsonrpc":"1.0","id":1,"result":{` + isComplete + `,` + metaOf + `,` + someText + `}}`,
		"and an error":      `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m"},"result":{}}`,
		"another kind":      result(`"resultType":"partial"`, metaOf, someText),
	}},
	{"tools/call", result(isAsking, metaOf, `"requestState":"s"`, `"inputRequests":{`+inForm+`}`), map[string]string{
		"neither":                result(isAsking, metaOf),
		"nothing asked":          result(isAsking, metaOf, `"inputRequests":{}`),
		"an unknown request":     result(isAsking, metaOf, `"inputRequests":{"q":{"method":"ping"}}`),
		"a nested form":          result(isAsking, metaOf, `"inputRequests":{"q":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"object"}}}}}}`),
		"no maxTokens":           result(isAsking, metaOf, `"inputRequests":{"q":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"t"}}]}}}`),
		"a URL without a URL":    result(isAsking, metaOf, `"inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"url","message":"m"}}}`),
		"related-task within it": result(isAsking, metaOf, `"inputRequests":{"q":{"method":"roots/list","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}}`),
		"a task id":              result(isAsking, metaOf, `"requestState":"s"`, `"taskId":"t"`),
		"an empty state":         result(isAsking, metaOf, `"requestState":""`),
	}},
	{"tools/call", result(isTask, metaOf, taskOf, `"status":"working","pollIntervalMs":500`), map[string]string{
		"no status":          result(isTask, metaOf, taskOf),
		"a result":           result(isTask, metaOf, taskOf, `"status":"completed","result":{}`),
		"a null error":       result(isTask, metaOf, taskOf, `"status":"working","error":null`),
		"a state":            result(isTask, metaOf, taskOf, `"status":"working","requestState":"s"`),
		"a wrapper":          result(isTask, metaOf, taskOf, `"status":"working","task":{}`),
		"the 99th":           result(isTask, metaOf, strings.Replace(taskOf, "2026-07-28", "2026-07-99", 1), `"status":"working"`),
		"no time of day":     result(isTask, metaOf, strings.Replace(taskOf, "T10:00:00.000Z", "", 1), `"status":"working"`),
		"more after a time":  result(isTask, metaOf, strings.Replace(taskOf, "00Z", "00Z ...", 1), `"status":"working"`),
		"ttlMs 0":            result(isTask, metaOf, strings.Replace(taskOf, "1000", "0", 1), `"status":"working"`),
		"no ttlMs":           result(isTask, metaOf, strings.Replace(taskOf, `,"ttlMs":1000`, "", 1), `"status":"working"`),
		"pollIntervalMs 0":   result(isTask, metaOf, taskOf, `"status":"working","pollIntervalMs":0`),
		"the name of 2025":   result(isTask, metaOf, taskOf, `"status":"working","pollInterval":5`),
		"an unknown status":  result(isTask, metaOf, taskOf, `"status":"expired"`),
		"an empty message":   result(isTask, metaOf, taskOf, `"status":"working","statusMessage":""`),
		"resultType missing": result(metaOf, taskOf, `"status":"working"`),
	}},
	{"tasks/get", result(isComplete, metaOf, taskOf, `"status":"working"`), map[string]string{
		"resultType task":    result(isTask, metaOf, taskOf, `"status":"working"`),
		"a result":           result(isComplete, metaOf, taskOf, `"status":"working","result":{`+isComplete+`,`+someText+`}`),
		"input_required":     result(isAsking, metaOf, `"requestState":"s"`),
		"null inputRequests": result(isComplete, metaOf, taskOf, `"status":"working","inputRequests":null`),
	}},
	{"tasks/get", result(isComplete, metaOf, taskOf, `"status":"input_required","inputRequests":{`+inForm+`}`), map[string]string{
		"nothing asked": result(isComplete, metaOf, taskOf, `"status":"input_required"`),
		"a state":       result(isComplete, metaOf, taskOf, `"requestState":"s","status":"input_required","inputRequests":{`+inForm+`}`),
	}},
	{"tasks/get", result(isComplete, metaOf, taskOf, `"status":"completed","result":{`+isComplete+`,`+someText+`}`), map[string]string{
		"no result":    result(isComplete, metaOf, taskOf, `"status":"completed"`),
		"and an error": result(isComplete, metaOf, taskOf, `"status":"completed","error":{"code":1,"message":"m"},"result":{`+isComplete+`,`+someText+`}`),
		"related-task": result(isComplete, metaOf, taskOf, `"status":"completed","result":{`+isComplete+`,`+someText+`,"_meta":{"io.modelcontextprotocol/related-task":{}}}`),
		"a state":      result(isComplete, metaOf, taskOf, `"requestState":"s","status":"completed","result":{`+isComplete+`,`+someText+`}`),
	}},
	{"tasks/get", result(isComplete, metaOf, taskOf, `"status":"failed","statusMessage":"m","error":{"code":-32603,"message":"m"}`), map[string]string{
		"no statusMessage": result(isComplete, metaOf, taskOf, `"status":"failed","error":{"code":-32603,"message":"m"}`),
		"no error":         result(isComplete, metaOf, taskOf, `"status":"failed","statusMessage":"m"`),
		"an error's text":  result(isComplete, metaOf, taskOf, `"status":"failed","statusMessage":"m","error":"m"`),
		"a result":         result(isComplete, metaOf, taskOf, `"status":"failed","statusMessage":"m","error":{"code":-32603,"message":"m"},"result":{}`),
	}},
	{"tasks/get", result(isComplete, metaOf, taskOf, `"status":"cancelled"`), map[string]string{
		"a result": result(isComplete, metaOf, taskOf, `"status":"cancelled","result":{`+isComplete+`,`+someText+`}`),
	}},
	{"tasks/update", result(isComplete, metaOf), map[string]string{"a task": result(isComplete, metaOf, taskOf), "no resultType": result(metaOf)}},
	{"tasks/cancel", result(isComplete, metaOf), map[string]string{"a status": result(isComplete, metaOf, `"status":"cancelled"`), "null": result(isComplete, metaOf, `"result":null`)}},
	{"tools/list", result(isComplete, metaOf, `"tools":[]`, `"ttlMs":0,"cacheScope":"public"`), map[string]string{
		"no scope": result(isComplete, metaOf, `"tools":[]`, `"ttlMs":0`), "input_required": result(isAsking, metaOf, `"requestState":"s"`), "a task": result(isTask, metaOf, taskOf, `"status":"working"`),
	}},
	{"prompts/get", result(isComplete, metaOf, `"messages":[]`), map[string]string{"null messages": result(isComplete, metaOf, `"messages":null`)}},
	{"resources/read", result(isComplete, metaOf, `"contents":[]`, `"ttlMs":0,"cacheScope":"private"`), map[string]string{"no ttlMs": result(isComplete, metaOf, `"contents":[]`, `"cacheScope":"private"`)}},
	{"server/discover", result(isComplete, metaOf, `"supportedVersions":["2026-07-28"],"capabilities":{"extensions":{}}`, `"ttlMs":0,"cacheScope":"public"`), map[string]string{
		"the tasks of 2025": result(isComplete, metaOf, `"supportedVersions":["2026-07-28"],"capabilities":{"tasks":{}}`, `"ttlMs":0,"cacheScope":"public"`),
	}},
	{"subscriptions/listen", result(isComplete, `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"},"io.modelcontextprotocol/subscriptionId":1}`), map[string]string{"no subscription": result(isComplete, metaOf)}},
	{"tools/call", failed(`"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}`), map[string]string{
		"no data":         failed(`"code":-32021,"message":"m"`),
		"nothing needed":  failed(`"code":-32021,"message":"m","data":{"requiredCapabilities":{}}`),
		"a list":          failed(`"code":-32021,"message":"m","data":{"requiredCapabilities":["sampling"]}`),
		"no message":      failed(`"code":-32021,"data":{"requiredCapabilities":{"sampling":{}}}`),
		"a null id":       `{"jsonrpc":"2.0","id":null,"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}}`,
		"an unknown code": failed(`"code":-32050,"message":"m"`),
	}},
	{"tools/call", failed(`"code":-32022,"message":"m","data":{"supported":["2026-07-28"],"requested":"2"}`), map[string]string{"no data": failed(`"code":-32022,"message":"m"`)}},
	{"tools/call", failed(`"code":-32602,"message":"m","data":{"reason":"invalid_answer","fields":{"q":{}}}`), map[string]string{"no fields": failed(`"code":-32602,"message":"m","data":{"reason":"invalid_answer"}`), "null data": failed(`"code":-32602,"message":"m","data":null`)}},
	{"subscriptions/listen", notice("notifications/tasks", stream+`,`+taskOf+`,"status":"working"`), map[string]string{
		"no subscription":   notice("notifications/tasks", taskOf+`,"status":"working"`),
		"a resultType":      notice("notifications/tasks", isComplete+`,`+stream+`,`+taskOf+`,"status":"working"`),
		"half a task":       notice("notifications/tasks", stream+`,`+taskOf+`,"status":"completed"`),
		"the 31st of June":  notice("notifications/tasks", stream+`,`+strings.ReplaceAll(taskOf, "07-28", "06-31")+`,"status":"working"`),
		"a message of ours": notice("notifications/ours", stream),
		"a request":         `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`,
	}},
	{"subscriptions/listen", notice("notifications/subscriptions/acknowledged", stream+`,"notifications":{"taskIds":["a"]}`), map[string]string{
		"no subscription": notice("notifications/subscriptions/acknowledged", `"notifications":{}`),
		"one id":          notice("notifications/subscriptions/acknowledged", stream+`,"notifications":{"taskIds":"a"}`),
	}},
	{"subscriptions/listen", notice("notifications/tools/list_changed", stream), map[string]string{"no subscription": notice("notifications/tools/list_changed", "")}},
	{"tools/call", notice("notifications/progress", `"progressToken":"p","progress":1`), map[string]string{"no token": notice("notifications/progress", `"progress":1`)}},
	{"subscriptions/listen", notice("notifications/cancelled", stream+`,"requestId":1`), map[string]string{
		"no request": notice("notifications/cancelled", stream), "another request": notice("notifications/cancelled", stream+`,"requestId":2`),
		"another subscription": notice("notifications/cancelled", `"_meta":{"io.modelcontextprotocol/subscriptionId":2},"requestId":1`),
		"a task's progress":    notice("notifications/progress", stream+`,"progressToken":"p","progress":1`), "a log": notice("notifications/message", stream+`,"level":"info","data":"x"`),
	}},
	{"tools/call", notice("notifications/message", `"level":"info","data":"x"`), map[string]string{
		"a cancel": notice("notifications/cancelled", stream+`,"requestId":1`), "a task": notice("notifications/tasks", stream+`,`+taskOf+`,"status":"working"`), "a list": notice("notifications/tools/list_changed", stream),
	}},
}

func judges(t *testing.T) map[string]*Judge {
	all := map[string]*Judge{}
	for name, dir := range map[string]string{"ours": "", "ours and the official ones": os.Getenv(OfficialDir)} {
		j, err := New(dir)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = j
	}
	return all
}

func TestARightMessageIsRightAndAWrongOneIsSeen(t *testing.T) {
	for name, j := range judges(t) {
		for _, m := range messages {
			if err := j.Message([]byte(request(m.method)), []byte(m.right)); err != nil {
				t.Errorf("%s: %s, %v", name, m.right, err)
			}
			for what, wrong := range m.wrong {
				if err := j.Message([]byte(request(m.method)), []byte(wrong)); err == nil {
					t.Errorf("%s: %s with %s was not seen: %s", name, m.method, what, wrong)
				}
			}
		}
	}
}

func TestAResultOfABadRequestIsSeen(t *testing.T) {
	j, right := judges(t)["ours"], result(isComplete, metaOf, someText)
	for what, bad := range map[string]string{
		"no name":         strings.Replace(request("tools/call"), `"name":"n",`, "", 1),
		"no capabilities": strings.Replace(request("tools/call"), `clientCapabilities`, "capabilities", 1),
		"another version": strings.Replace(request("tools/call"), "2026-07-28", "2025-11-25", 1),
		"null answers":    strings.Replace(request("tools/call"), `"name":"n",`, `"name":"n","inputResponses":null,`, 1),
		"no params":       `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`,
		"no JSON":         `{`,
	} {
		if err := j.Message([]byte(bad), []byte(right)); err == nil {
			t.Errorf("%s was not seen", what)
		}
	}
	undeclared := strings.Replace(request("tasks/cancel"), tasksCap, "{}", 1)
	if err := j.Message([]byte(undeclared), []byte(result(isComplete, metaOf))); err == nil {
		t.Error("a cancel without the extension, acked, was not seen")
	}
}

func TestAStatusThatDoesNotGoWithItsMessageIsSeen(t *testing.T) {
	j, asked := judges(t)["ours"], []byte(request("tools/call"))
	for _, c := range []struct {
		status int
		kind   string
		body   string
		right  bool
	}{
		{200, "application/json", result(isComplete, metaOf, someText), true},
		{400, "application/json", result(isComplete, metaOf, someText), false},
		{200, "text/plain", result(isComplete, metaOf, someText), false},
		{400, "application/json", failed(`"code":-32602,"message":"m"`), true},
		{200, "application/json", failed(`"code":-32602,"message":"m"`), false},
		{500, "application/json", failed(`"code":-32602,"message":"m"`), false},
		{404, "application/json", failed(`"code":-32601,"message":"m"`), true},
		{400, "application/json", failed(`"code":-32601,"message":"m"`), false},
		{400, "application/json", failed(`"code":-32603,"message":"m"`), false},
		{200, "application/json", failed(`"code":1001,"message":"m"`), false},
		{400, "application/json", failed(`"code":1001,"message":"m"`), true},
		{202, "", "", true},
		{404, "", "", false},
		{200, "text/event-stream", "event: message\ndata: " + failed(`"code":-32602,"message":"m"`) + "\n\n", true},
		{400, "text/event-stream", "event: message\ndata: " + failed(`"code":-32602,"message":"m"`) + "\n\n", false},
		{200, "text/event-stream", ": keep-alive\n\nevent: message\ndata: {}\n\n", false},
		{200, "text/event-stream", "event: message\ndata: {\"half", true}, // it broke off
	} {
		if err := j.Response(asked, c.status, c.kind, []byte(c.body)); (err == nil) != c.right {
			t.Errorf("%d %s %s: %v", c.status, c.kind, c.body, err)
		}
	}
}

// A folder that is named and lacks a schema fails, rather than judging less.
func TestAFolderWithoutTheSchemasIsAnError(t *testing.T) {
	if _, err := New(t.TempDir()); err == nil {
		t.Error("it was taken")
	}
}

func TestEachDefinitionIsUsed(t *testing.T) {
	j := judges(t)["ours"]
	text := string(ours)
	for name := range j.own.names {
		top := strings.HasPrefix(name, "result") || strings.HasPrefix(name, "request") || strings.HasPrefix(name, "error ") || strings.HasPrefix(name, "notifications/") ||
			strings.Contains("response input_required created task", name)
		if !top && !strings.Contains(text, `"#/$defs/`+name+`"`) {
			t.Errorf("%s is used by nothing", name)
		}
	}
}
