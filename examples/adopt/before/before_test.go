package main

import (
	"testing"

	"github.com/tallystick/tallystick/examples/internal/exampletest"
)

func TestTheProgramClosesUnasked(t *testing.T) {
	p := exampletest.Start(t, exampletest.Build(t))
	ann := p.Connect("ann", nil)
	for range 2 {
		if _, text := exampletest.Call(t, ann, "close", map[string]any{"account": "A1"}); text != `{"euros":40}` {
			t.Errorf("closed: %s", text)
		}
	}
}
