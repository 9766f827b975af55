package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// case S06, S09: what is no result in the protocol's words is no success.
func TestWhatIsNoResultIsAnError(t *testing.T) {
	const q = `{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}`
	asks := func(requests string) string {
		return `{"resultType":"input_required","inputRequests":` + requests + `}`
	}
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"k%d":%s`, i, q))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	task := `{"resultType":"task","taskId":"t","status":"working","createdAt":"2026-11-30T10:00:00Z","lastUpdatedAt":"2026-11-30T10:00:00Z","ttlMs":1000}`
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for name, c := range map[string]struct {
		raw  string
		want string // "complete", "asks", "task", or a part of the error
	}{
		"without a type":              {`{"content":[]}`, "complete"},
		"complete":                    {`{"resultType":"complete","content":[]}`, "complete"},
		"an unknown type":             {`{"resultType":"partial","content":[]}`, `"partial"`},
		"a type of another case":      {`{"resultType":"Complete","content":[]}`, `"Complete"`},
		"an empty type":               {`{"resultType":""}`, `""`},
		"a number":                    {`{"resultType":1}`, "no string"},
		"null":                        {`{"resultType":null}`, "no string"},
		"an object":                   {`{"resultType":{}}`, "no string"},
		"a long type":                 {`{"resultType":"` + strings.Repeat("x", 10_000) + `"}`, "…"},
		"a name of another case":      {`{"ResultType":"input_required","requestState":"s"}`, "complete"},
		"both cases":                  {`{"ResultType":"complete","resultType":"input_required","requestState":"s"}`, "asks"},
		"the type twice":              {`{"resultType":"complete","resultType":"input_required","requestState":"s"}`, "duplicate"},
		"any member twice":            {`{"content":[],"content":[1]}`, "duplicate"},
		"a member inside twice":       {`{"content":[{"type":"text","type":"image"}]}`, "duplicate"},
		"a folded name":               {`{"re\u017fultType":"input_required","content":[]}`, "complete"},
		"invalid UTF-8":               {"{\"content\":[\"\xff\"]}", "UTF-8"},
		"half a surrogate":            {`{"content":["\ud800"]}`, "surrogate"},
		"no object":                   {`[]`, "result"},
		"a string":                    {`"complete"`, "result"},
		"nothing":                     {``, "result"},
		"more than one":               {`{} {}`, "result"},
		"nested too deep":             {`{"content":` + deep + `}`, "depth"},
		"a task":                      {task, "task"},
		"a task that may not be":      {task, "may not become one"},
		"a task without an id":        {`{"resultType":"task","status":"working"}`, "taskId"},
		"a task with an empty id":     {`{"resultType":"task","taskId":"","status":"working"}`, "taskId"},
		"a task with a number":        {`{"resultType":"task","taskId":1,"status":"working"}`, "json"},
		"a task of an unknown status": {`{"resultType":"task","taskId":"t","status":"paused"}`, `"paused"`},
		"a task without a status":     {`{"resultType":"task","taskId":"t"}`, "status"},
		"a task with an odd ttl":      {`{"resultType":"task","taskId":"t","status":"working","ttlMs":"soon"}`, "task"},
		"a task with an odd interval": {`{"resultType":"task","taskId":"t","status":"working","pollIntervalMs":"1"}`, "task"},
		"input without anything":      {`{"resultType":"input_required"}`, "without inputRequests and without requestState"},
		"an empty map":                {asks("{}"), "without inputRequests and without requestState"},
		"an empty map and a state":    {`{"resultType":"input_required","inputRequests":{},"requestState":""}`, "asks"},
		"a state alone":               {`{"resultType":"input_required","requestState":"s"}`, "asks"},
		"a state that is a number":    {`{"resultType":"input_required","requestState":7}`, "requestState is no string"},
		"a state that is null":        {`{"resultType":"input_required","requestState":null}`, "requestState is no string"},
		"an odd state beside":         {`{"resultType":"input_required","inputRequests":{"k":` + q + `},"requestState":{}}`, "requestState is no string"},
		"questions":                   {asks(`{"k":` + q + `}`), "asks"},
		"questions in an array":       {asks(`[` + q + `]`), "no object"},
		"questions that are null":     {asks(`null`), "no object"},
		"a question that is null":     {asks(`{"k":null}`), "no request"},
		"a question without a method": {asks(`{"k":{}}`), "method"},
		"a question by another":       {asks(`{"k":{"method":"tools/call","params":{"name":"rm"}}}`), `"tools/call"`},
		"a method of another case":    {asks(`{"k":{"method":"Elicitation/create","params":{}}}`), "method"},
		"without params":              {asks(`{"k":{"method":"elicitation/create"}}`), "message"},
		"without a message":           {asks(`{"k":{"method":"elicitation/create","params":{"requestedSchema":{}}}}`), "message"},
		"without a schema":            {asks(`{"k":{"method":"elicitation/create","params":{"message":"m"}}}`), "requestedSchema"},
		"an odd schema":               {asks(`{"k":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":7}}}}`), "requestedSchema"},
		"a reference":                 {asks(`{"k":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"$ref":"http://evil.test/s"}}}}`), "requestedSchema"},
		"an odd pattern":              {asks(`{"k":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}}}}`), "requestedSchema"},
		"an unknown mode":             {asks(`{"k":{"method":"elicitation/create","params":{"mode":"voice","message":"m"}}}`), `"voice"`},
		"a URL without one":           {asks(`{"k":{"method":"elicitation/create","params":{"mode":"url","message":"m"}}}`), "URL"},
		"sampling without params":     {asks(`{"k":{"method":"sampling/createMessage"}}`), "params"},
		"one bad among good":          {asks(`{"a":` + q + `,"b":{"method":"x"}}`), `"b"`},
		"a key twice":                 {asks(`{"k":` + q + `,"k":` + q + `}`), "duplicate"},
		"as many as may be":           {asks(many(8)), "asks"},
		"one more":                    {asks(many(9)), "Limits.Questions 8"},
	} {
		r, err := readReply([]byte(c.raw), name != "a task that may not be", 8)
		got := ""
		switch {
		case err != nil:
			if got = err.Error(); !errors.Is(err, ErrInvalidResponse) {
				t.Errorf("%s: %v is not ErrInvalidResponse", name, err)
			}
		case r.complete != nil:
			got = "complete"
		case r.asks != nil:
			got = "asks"
		case r.task != nil:
			got = "task"
		}
		if len(got) > 1000 {
			t.Errorf("%s: an error of %d bytes", name, len(got))
		}
		if wanted := map[string]bool{"complete": true, "asks": true, "task": true}[c.want]; wanted != (err == nil) || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, not %s", name, cut(got), c.want)
		}
	}
}

func TestATaskInEachOfItsShapes(t *testing.T) {
	for name, c := range map[string]struct {
		raw string
		bad string
	}{
		"no end":                   {`{"taskId":"t","status":"working","ttlMs":null}`, ""},
		"asks":                     {`{"taskId":"t","status":"input_required","inputRequests":{}}`, ""},
		"asks in an array":         {`{"taskId":"t","status":"input_required","inputRequests":[]}`, "inputRequests"},
		"a result that is none":    {`{"taskId":"t","status":"completed","result":"done"}`, "result"},
		"an error without a code":  {`{"taskId":"t","status":"failed","error":{"message":"no"}}`, "code"},
		"an error that is none":    {`{"taskId":"t","status":"failed","error":"no"}`, "task"},
		"a huge interval":          {`{"taskId":"t","status":"working","pollIntervalMs":9223372036854775807}`, ""},
		"an interval over 64 bits": {`{"taskId":"t","status":"working","pollIntervalMs":1e40}`, ""},
		"below zero":               {`{"taskId":"t","status":"working","pollIntervalMs":-5,"ttlMs":-5}`, ""},
		"a long id":                {`{"taskId":"` + strings.Repeat("t", 1025) + `","status":"working"}`, "taskId"},
		"names of another case":    {`{"TaskID":"t","Status":"working"}`, "taskId"},
	} {
		m, err := readTask([]byte(c.raw), 8)
		if (err != nil) != (c.bad != "") || err != nil && (!errors.Is(err, ErrInvalidResponse) || !strings.Contains(err.Error(), c.bad)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (m.Poll < 0 || m.TTL != nil && *m.TTL < 0) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// A task that has been made is not lost for a time of it that cannot be meant.
func TestTheTimesOfATask(t *testing.T) {
	for written, want := range map[string]struct {
		wait time.Duration
		odd  bool
	}{
		"100": {100 * time.Millisecond, false}, "100.0": {100 * time.Millisecond, false}, "1e2": {100 * time.Millisecond, false},
		"0": {0, false}, "null": {0, false}, "1e40": {milliseconds(1 << 62), false},
		"-5": {0, true}, "0.5": {0, true}, `"100"`: {0, true}, "{}": {0, true}, "true": {0, true}, "1e999": {0, true}, "[1]": {0, true},
	} {
		m, err := readTask([]byte(`{"taskId":"t","status":"working","ttlMs":`+written+`,"pollIntervalMs":`+written+`}`), 8)
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		if ended := !want.odd && written != "null"; m.Poll != want.wait || (m.TTL != nil) != ended || ended && *m.TTL != want.wait {
			t.Errorf("%s: the interval is %v, the time to live %v", written, m.Poll, m.TTL)
		}
		if odd := strings.Join(m.Odd, " "); (odd == "ttlMs pollIntervalMs") != want.odd || !want.odd && odd != "" {
			t.Errorf("%s: odd are %q", written, odd)
		}
	}
}
