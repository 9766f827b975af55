package wire

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tallystick/tallystick/internal/wire/shape"
)

// judgeMessages holds messages that answer a request of this revision against
// the schemas; other requests' are not theirs.
func judgeMessages(t *testing.T, request string, messages []string) {
	t.Helper()
	if !isModern([]byte(request)) {
		return
	}
	for _, m := range messages {
		if err := judge(t).Message([]byte(request), []byte(m)); err != nil {
			t.Errorf("%v in %.2000s", err, m)
		}
	}
}

// judgeResponse does the same over HTTP, where a status goes with each message.
func judgeResponse(t *testing.T, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	if req.Method != http.MethodPost || req.GetBody == nil {
		return
	}
	r, err := req.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	request, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if req.Header.Get(headerVersion) != Version && !isModern(request) {
		return
	}
	if err := judge(t).Response(request, resp.StatusCode, resp.Header.Get("Content-Type"), body); err != nil {
		t.Error(err)
	}
}

func judge(t *testing.T) *shape.Judge {
	t.Helper()
	j, err := shape.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func isModern(request []byte) bool {
	var m struct {
		Params struct {
			Meta map[string]any `json:"_meta"`
		} `json:"params"`
	}
	_ = json.Unmarshal(request, &m) // some are bad on purpose
	_, ok := m.Params.Meta[mcp.MetaKeyProtocolVersion]
	return ok
}
