package storetest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/tallystick/tallystick/record"
)

// Full returns a call in which no field is zero, so that one which a store
// forgets shows. Fields that are new in record are filled too.
func Full(id string) *record.Call {
	var c record.Call
	f := filler{}
	f.fill(reflect.ValueOf(&c).Elem())
	c.ID, c.State, c.Version = id, record.Running, 0
	for i := range c.Questions {
		c.Questions[i].Within = 0 // never stored
	}
	return &c
}

// FullEntry is an audit entry in which no field is zero.
func FullEntry() record.Entry {
	var e record.Entry
	f := filler{}
	f.fill(reflect.ValueOf(&e).Elem())
	return e
}

// FullMark is a mark in which no field is zero.
func FullMark(call string) record.Mark {
	var m record.Mark
	f := filler{}
	f.fill(reflect.ValueOf(&m).Elem())
	m.Call = call
	return m
}

// filler gives every field another value.
type filler struct{ n int64 }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(start.Add(time.Hour + time.Duration(f.n)*1001)))
		return
	case []byte:
		v.SetBytes(fmt.Appendf(nil, `{"n":%d,"odd":"\x00\xff"}`, f.n))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1<<60 + f.n) // more than a float64 holds
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.1)
	default:
		panic("storetest: cannot fill " + v.Type().String())
	}
}
