package tallystick_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
)

// A request that is refused before its body is read does not hold the
// connection until the body comes.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	d := newDesk(t, setup{tools: func(d *desk) { addEcho(d, "echo", tallystick.TaskForbidden) }})
	for head, want := range map[string]int{
		"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n":                            http.StatusUnsupportedMediaType,
		"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n":                      http.StatusBadRequest,
		"PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n":                       http.StatusMethodNotAllowed,
		"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nAccept: */*\r\n":          http.StatusForbidden,
		"DELETE / HTTP/1.1\r\nHost: 127.0.0.1\r\nMcp-Session-Id: none\r\nAuthorization: Bearer ann\r\n": http.StatusNotFound,
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%sContent-Length: 100\r\n\r\n{", head)
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%q: %+v, %v, want %d", head, resp, err, want)
		}
	}
}
