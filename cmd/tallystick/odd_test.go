package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// odd is an MCP server on standard input and output that says what no SDK would:
// its argument is the result of every call.
func odd() {
	result := `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{}},"ttlMs":0,"cacheScope":"private"}`
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil || request.ID == nil {
			continue
		}
		if request.Method != "server/discover" {
			result = os.Args[1]
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", request.ID, result)
	}
}
