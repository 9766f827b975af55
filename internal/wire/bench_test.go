package wire

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// What one call costs here and at the SDK, the network apart.
func BenchmarkCall(b *testing.B) {
	front := NewHTTP(newFake(), HTTPOptions{Server: newSDKServer()})
	for _, tool := range []string{"echo", "sdk_tool"} {
		body := call("1", tool, `{"order":"1234","reason":"broken"}`)
		b.Run(tool, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest("POST", "http://mcp.example/mcp", strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Accept", "application/json, text/event-stream")
				req.Header.Set(headerVersion, Version)
				req.Header.Set(headerMethod, MethodCallTool)
				req.Header.Set(headerName, tool)
				w := httptest.NewRecorder()
				front.ServeHTTP(w, req)
				if w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
