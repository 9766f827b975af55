package row_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/tallystick/tallystick/record"
	"github.com/tallystick/tallystick/store/internal/row"
	"github.com/tallystick/tallystick/store/storetest"
)

// shared names what both values have the same memory for.
func shared(at string, a, b reflect.Value) []string {
	if a.Type() == reflect.TypeFor[time.Time]() {
		return nil // never changed in place
	}
	var found []string
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			found = append(found, shared(at+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))...)
		}
	case reflect.Slice:
		for i := range a.Len() {
			found = append(found, shared(at+"[]", a.Index(i), b.Index(i))...)
		}
		if a.Len() > 0 && a.Pointer() == b.Pointer() {
			found = append(found, at)
		}
	case reflect.Pointer:
		if !a.IsNil() && a.Pointer() == b.Pointer() {
			return []string{at}
		} else if !a.IsNil() {
			found = shared(at, a.Elem(), b.Elem())
		}
	case reflect.Map, reflect.Chan, reflect.Func, reflect.Interface:
		return []string{at + ": nobody copies a " + a.Kind().String()}
	}
	return found
}

func TestACopyIsWhatIsReadBack(t *testing.T) {
	full := storetest.Full("c")
	full.CreatedAt = time.Now() // with a monotonic part, and here
	empty := &record.Call{ID: "c", Roles: []string{}, Args: []byte{}, Rounds: []record.Round{{Asked: []string{}}}, Questions: []record.Question{{Within: 1}}}
	for _, c := range []*record.Call{full, empty} {
		doc, err := row.EncodeCall(c)
		if err != nil {
			t.Fatal(err)
		}
		want, err := row.DecodeCall(doc)
		if err != nil {
			t.Fatal(err)
		}
		got := row.Copy(c)
		if found := shared("call", reflect.ValueOf(*c), reflect.ValueOf(*got)); len(found) > 0 {
			t.Errorf("the copy shares %v", found)
		}
		if len(got.Args) != len(c.Args) || len(got.Result) != len(c.Result) || !got.Lease.Until.Equal(c.Lease.Until) {
			t.Error("what columns hold is not copied")
		}
		got.Version, got.Lease, got.Args, got.Result = want.Version, want.Lease, nil, nil // of the columns
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the copy is\n%+v\nand not\n%+v", got, want)
		}
	}
}
