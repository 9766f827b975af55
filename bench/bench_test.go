package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if serving() {
		serve()
		return
	}
	os.Exit(m.Run())
}

// That the numbers are good is not tested: they are the machine's. That each
// response was as it should be is, by the figures themselves.
func TestEachFigureRuns(t *testing.T) {
	for _, f := range figures {
		t.Run(f.name, func(t *testing.T) {
			var log bytes.Buffer
			rows, err := measure(quick, f.name, &log)
			if err != nil {
				t.Fatalf("%v\n%s", err, &log)
			}
			var table strings.Builder
			write(&table, rows)
			if lines := strings.Count(table.String(), "\n"); len(rows) == 0 || lines != len(rows)+2 {
				t.Errorf("%d rows in\n%s", len(rows), &table)
			}
			for _, r := range rows {
				if r.figure == "" || r.ours == "" || strings.Contains(table.String(), "NaN") {
					t.Errorf("a row says nothing: %+v", r)
				}
			}
		})
	}
}

func TestAFigureThatIsNotThereIsAnError(t *testing.T) {
	if _, err := measure(quick, "greet,great", &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "great") {
		t.Errorf("the error is %v", err)
	}
}

func TestFillingInKeepsTheLength(t *testing.T) {
	m := compose("127.0.0.1:1", "tasks/get", place, nil)
	head, body, _ := strings.Cut(string(m.fill(nil, "abc")), "\r\n\r\n")
	if !strings.Contains(head, "Mcp-Name: abc\r\n") || !strings.Contains(body, `"taskId":"abc"`) {
		t.Errorf("%s\n%s", head, body)
	}
	if want := "Content-Length: " + strconv.Itoa(len(body)); !strings.HasSuffix(head, want) {
		t.Errorf("%q does not end in %q", head, want)
	}
}
