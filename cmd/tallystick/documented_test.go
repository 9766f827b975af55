package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/cmd/tallystick/internal/settings"
)

// Every member of what --json prints, and of the settings, is in the
// documentation, and so is every command and every flag that answers.
func TestEveryMemberIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	has := func(name string) bool {
		return strings.Contains(doc, "`"+name+"`") || strings.Contains(doc, `"`+name+`"`)
	}
	var members func(typ reflect.Type)
	members = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "" {
				t.Errorf("%v.%s has no name in JSON", typ, typ.Field(i).Name)
			} else if !has(name) {
				t.Errorf("%v: %q is not in docs/cli.md", typ, name)
			}
			members(typ.Field(i).Type)
		}
	}
	for _, v := range []any{callInfo{}, failure{}, serverInfo{}, keyInfo{}, settings.File{}} {
		members(reflect.TypeOf(v))
	}
	root, _ := command()
	for _, c := range root.Commands() {
		if !c.Hidden && !strings.Contains(doc, "| `"+c.Name()) {
			t.Errorf("the command %s is not in docs/cli.md", c.Name())
		}
	}
	for _, flag := range []string{"answer", "yes", "decline", "dismiss", "no-input", "timeout", "trace", "header", "env", "json", "quiet"} {
		if !strings.Contains(doc, "`--"+flag) {
			t.Errorf("the flag --%s is not in docs/cli.md", flag)
		}
	}
}
