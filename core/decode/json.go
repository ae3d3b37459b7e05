// SPDX-License-Identifier: MIT

package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
)

const (
	// MaxJSON is the length of the longest JSON message, in bytes.
	MaxJSON = 1 << 20
	// maxElements bounds the bytes of the elements of all slices of a message, in addition to a
	// quarter of its length. Slices grow as their elements are decoded, so decoding allocates up to 5
	// times as much.
	maxElements = 128 << 10
)

// JSON decodes a JSON message as json.Unmarshal does, but the message's length bounds every
// allocation. An array element takes 3 bytes of text ("{},") and may become a struct of hundreds of
// bytes. So JSON first counts the elements, and rejects a message whose slices could exceed
// maxElements bytes. It accepts structs, slices, arrays, strings, numbers and bools.
func JSON(b []byte, to any) error {
	t := reflect.TypeOf(to)
	if t == nil || t.Kind() != reflect.Pointer {
		return fmt.Errorf("decode into %T: want a pointer", to)
	}
	var size elementSizes
	size.add(t.Elem())
	switch n := size.total(b); {
	case len(b) > MaxJSON:
		return fmt.Errorf("%w: %d bytes of JSON, want at most %d", ErrMalformed, len(b), MaxJSON)
	case !utf8.Valid(b): // json would replace each invalid byte with three bytes
		return fmt.Errorf("%w: JSON that is not UTF-8", ErrMalformed)
	case n > maxElements+len(b)/4:
		return fmt.Errorf("%w: JSON of %[3]d bytes needs lists of %[2]d bytes, want at most %[4]d", ErrMalformed, n, len(b), maxElements+len(b)/4)
	}
	err := json.Unmarshal(b, to)
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) { // its text would contain all of b
		return fmt.Errorf("%w: byte %d: field %q is not of type %v", ErrMalformed, kind.Offset, kind.Field, kind.Type)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// elementSizes are the sizes of the largest slice elements in a type, by the kind of JSON value
// that they are decoded from. A null may become an element of any kind.
type elementSizes struct{ object, array, text, plain int }

// add adds the slices in t. It panics if t has a type whose allocation JSON cannot bound.
func (s *elementSizes) add(t reflect.Type) {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" {
				s.add(f.Type)
			}
		}
	case reflect.Array:
		s.add(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 { // else it is a base64 text
			of := s.of(t.Elem())
			*of = max(*of, int(t.Elem().Size()))
			s.add(t.Elem())
		}
	case reflect.Map, reflect.Interface, reflect.Pointer, reflect.Func, reflect.Chan:
		panic(fmt.Sprintf("decode: type %v cannot be decoded from JSON", t))
	}
}

// of returns the field of s that holds the size of elements of type t.
func (s *elementSizes) of(t reflect.Type) *int {
	switch {
	case t.Kind() == reflect.Struct:
		return &s.object
	case t.Kind() == reflect.String, t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return &s.text
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return &s.array
	}
	return &s.plain
}

// total returns the most bytes that the elements of all slices of b can have.
func (s *elementSizes) total(b []byte) (n int) {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			n += s.text
		case '{':
			n += s.object
		case '[': // counts its first element
			n += s.array + s.plain
		case ',':
			n += s.plain
		case 'n':
			n += max(s.object, s.array, s.text, s.plain)
		}
	}
	return n
}
