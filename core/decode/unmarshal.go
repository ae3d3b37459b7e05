// SPDX-License-Identifier: MIT

package decode

import (
	"fmt"
	"reflect"
	"strconv"
)

// Unmarshal decodes a msgpack array into the struct that to points to. It fills the exported fields
// in order, as msgpack's "as_array" writes them. If the array is shorter, the remaining fields keep
// their values; if it is longer, Unmarshal skips the rest. So either side may be newer. A nil
// leaves its field unchanged.
//
// Fields are integers, bools, strings, []byte and slices of such structs. The tag max bounds the
// bytes of a string or []byte, or the elements of a slice. A slice of structs must have the tag,
// since an element of one byte may become a large struct.
func Unmarshal(b []byte, to any) error {
	v := reflect.ValueOf(to)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("decode into %T: want a pointer to a struct", to)
	}
	r := NewReader(b)
	r.fields(v.Elem())
	return r.err
}

// fields decodes an array into the exported fields of v.
func (r *Reader) fields(v reflect.Value) {
	n := r.Array()
	for i := 0; i < v.NumField() && n > 0 && r.err == nil; i++ {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		n--
		if !r.Nil() {
			r.field(v.Field(i), f)
		}
	}
	r.Skip(n)
}

func (r *Reader) field(v reflect.Value, f reflect.StructField) {
	switch f.Type.Kind() {
	case reflect.Bool:
		v.SetBool(r.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n := r.Int()
		if v.OverflowInt(n) {
			r.Fail("field %s: integer %d is out of range", f.Name, n)
			return
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := r.Uint()
		if v.OverflowUint(n) {
			r.Fail("field %s: integer %d is out of range", f.Name, n)
			return
		}
		v.SetUint(n)
	case reflect.String:
		v.SetString(r.Text(limitOf(f, r.size)))
	case reflect.Slice:
		if f.Type.Elem().Kind() == reflect.Uint8 {
			v.SetBytes(r.Bytes(limitOf(f, r.size)))
			return
		}
		r.slice(v, f)
	default:
		panic(fmt.Sprintf("decode: field %s of type %v cannot be decoded", f.Name, f.Type))
	}
}

// slice decodes an array of structs.
func (r *Reader) slice(v reflect.Value, f reflect.StructField) {
	limit := limitOf(f, -1)
	if limit < 0 || f.Type.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("decode: slice %s of type %v needs structs and the tag max", f.Name, f.Type))
	}
	n := r.Array()
	if n > limit {
		r.Fail("field %s: %d elements, want at most %d", f.Name, n, limit)
	}
	if r.err != nil {
		return
	}
	all := reflect.MakeSlice(f.Type, n, n)
	for i := 0; i < n && r.err == nil; i++ {
		r.fields(all.Index(i))
	}
	v.Set(all)
}

// limitOf returns the tag max of a field, or the given default.
func limitOf(f reflect.StructField, without int) int {
	text, ok := f.Tag.Lookup("max")
	if !ok {
		return without
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("decode: field %s has the tag max %q", f.Name, text))
	}
	return n
}
