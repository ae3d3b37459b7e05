// SPDX-License-Identifier: MIT

package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed reports a message that is truncated, not msgpack, or has other types than expected.
var ErrMalformed = errors.New("malformed message")

// A Kind is the type of a msgpack element.
type Kind uint8

// The kinds of elements.
const (
	KindNone Kind = iota // the message has ended, or is malformed
	KindNil
	KindBool
	KindInt // signed or unsigned
	KindFloat
	KindText   // a string
	KindBinary // a byte string
	KindExtension
	KindArray
	KindMap
)

var kindNames = [...]string{"nothing", "nil", "a bool", "an integer", "a float", "a text", "a binary", "an extension", "an array", "a map"}

func (k Kind) String() string { return kindNames[k] }

// A Reader decodes the elements of one message in order. After the first error, which Err returns,
// all calls return zero values.
type Reader struct {
	rest []byte
	size int // of the whole message
	err  error
}

// NewReader returns a Reader of the message b, which must not change while it is read.
func NewReader(b []byte) *Reader { return &Reader{rest: b, size: len(b)} }

// Err returns the first error, or nil.
func (r *Reader) Err() error { return r.err }

// Fail records an error, unless the Reader already has one.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("byte %d of %d: %w: %w", r.size-len(r.rest), r.size, ErrMalformed, fmt.Errorf(format, args...))
	}
}

// An element is the head of a msgpack element: its kind, and its value or its length. The length is
// in bytes for texts, binaries, extensions and floats, in elements for arrays, in pairs for maps.
type element struct {
	kind     Kind
	value    uint64 // of an integer or bool; else the length, in the unit of the kind
	negative bool   // value is a two's complement
	head     int    // bytes of the head
}

// layout describes the heads that consist of one byte and a number: 0xc4 to 0xdf.
var layout = [...]struct {
	kind   Kind
	number int // bytes of the number that follows
	fixed  uint64
}{
	0: {KindBinary, 1, 0}, {KindBinary, 2, 0}, {KindBinary, 4, 0},
	0xc7 - 0xc4: {KindExtension, 1, 1}, {KindExtension, 2, 1}, {KindExtension, 4, 1}, // the type of an extension is a byte of its own
	0xca - 0xc4: {KindFloat, 0, 4}, {KindFloat, 0, 8},
	0xcc - 0xc4: {KindInt, 1, 0}, {KindInt, 2, 0}, {KindInt, 4, 0}, {KindInt, 8, 0},
	0xd0 - 0xc4: {KindInt, 1, 0}, {KindInt, 2, 0}, {KindInt, 4, 0}, {KindInt, 8, 0},
	0xd4 - 0xc4: {KindExtension, 0, 2}, {KindExtension, 0, 3}, {KindExtension, 0, 5}, {KindExtension, 0, 9}, {KindExtension, 0, 17},
	0xd9 - 0xc4: {KindText, 1, 0}, {KindText, 2, 0}, {KindText, 4, 0},
	0xdc - 0xc4: {KindArray, 2, 0}, {KindArray, 4, 0},
	0xde - 0xc4: {KindMap, 2, 0}, {KindMap, 4, 0},
}

// peek decodes the head of the next element. If its length or count exceeds the bytes left in the
// message, that is an error.
func (r *Reader) peek() (e element) {
	if r.err != nil {
		return element{}
	}
	if len(r.rest) == 0 {
		r.Fail("the message ends")
		return element{}
	}
	c := r.rest[0]
	switch {
	case c < 0x80:
		return element{kind: KindInt, value: uint64(c), head: 1}
	case c < 0x90:
		e = element{kind: KindMap, value: uint64(c & 0x0f), head: 1}
	case c < 0xa0:
		e = element{kind: KindArray, value: uint64(c & 0x0f), head: 1}
	case c < 0xc0:
		e = element{kind: KindText, value: uint64(c & 0x1f), head: 1}
	case c == 0xc0:
		return element{kind: KindNil, head: 1}
	case c == 0xc1:
		r.Fail("element of type 0xc1")
		return element{}
	case c < 0xc4:
		return element{kind: KindBool, value: uint64(c & 1), head: 1}
	case c >= 0xe0:
		return element{kind: KindInt, value: uint64(int64(int8(c))), negative: true, head: 1}
	default:
		l := layout[c-0xc4]
		if 1+l.number > len(r.rest) {
			r.Fail("%v is cut short", l.kind)
			return element{}
		}
		e = element{kind: l.kind, value: number(r.rest[1 : 1+l.number]), head: 1 + l.number}
		if l.kind == KindInt {
			if c >= 0xd0 {
				shift := 64 - 8*l.number
				e.value = uint64(int64(e.value<<shift) >> shift)
				e.negative = int64(e.value) < 0
			}
			return e
		}
		e.value += l.fixed
	}
	least := e.value
	if e.kind == KindMap {
		least *= 2
	}
	if left := len(r.rest) - e.head; least > uint64(left) {
		r.Fail("%v claims %d elements or bytes, but %d bytes are left", e.kind, e.value, left)
		return element{}
	}
	return e
}

// number returns a big-endian number of 0 to 8 bytes.
func number(b []byte) uint64 {
	var whole [8]byte
	copy(whole[8-len(b):], b)
	return binary.BigEndian.Uint64(whole[:])
}

// Next returns the kind of the next element without consuming it. At the end of the message it
// returns KindNone and records no error.
func (r *Reader) Next() Kind {
	if len(r.rest) == 0 {
		return KindNone
	}
	return r.peek().kind
}

// take consumes the head of the next element, whose kind must be one of those wanted.
func (r *Reader) take(wanted ...Kind) (e element, ok bool) {
	e = r.peek()
	if r.err != nil {
		return element{}, false
	}
	for _, k := range wanted {
		if e.kind == k {
			r.rest = r.rest[e.head:]
			return e, true
		}
	}
	r.Fail("%v instead of %v", e.kind, wanted[0])
	return element{}, false
}

// Array consumes the head of an array and returns its number of elements. Each element takes at
// least one byte of the rest of the message.
func (r *Reader) Array() int {
	e, _ := r.take(KindArray)
	return int(e.value)
}

// Nil consumes a nil if that is the next element, and reports whether it was.
func (r *Reader) Nil() bool {
	if r.err != nil || r.Next() != KindNil {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// Bool consumes a bool.
func (r *Reader) Bool() bool {
	e, _ := r.take(KindBool)
	return e.value == 1
}

// Int consumes an integer that fits an int64.
func (r *Reader) Int() int64 {
	e, ok := r.take(KindInt)
	if ok && !e.negative && e.value > math.MaxInt64 {
		r.Fail("integer %d is out of range", e.value)
		return 0
	}
	return int64(e.value)
}

// Uint consumes a nonnegative integer.
func (r *Reader) Uint() uint64 {
	e, ok := r.take(KindInt)
	if ok && e.negative {
		r.Fail("integer %d is out of range", int64(e.value))
		return 0
	}
	return e.value
}

// Text consumes a text or binary of at most limit bytes.
func (r *Reader) Text(limit int) string { return string(r.bytes(limit)) }

// Bytes consumes a binary or text of at most limit bytes, and returns a copy.
func (r *Reader) Bytes(limit int) []byte {
	b := r.bytes(limit)
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// bytes consumes a text or binary and returns it as a part of the message, without a copy.
func (r *Reader) bytes(limit int) []byte {
	e, ok := r.take(KindText, KindBinary)
	if !ok {
		return nil
	}
	if e.value > uint64(limit) {
		r.Fail("%v of %d bytes, want at most %d", e.kind, e.value, limit)
		return nil
	}
	b := r.rest[:e.value:e.value]
	r.rest = r.rest[e.value:]
	return b
}

// Skip consumes n elements of any kind, including nested elements.
func (r *Reader) Skip(n int) {
	for left := uint64(max(n, 0)); left > 0 && r.err == nil; left-- {
		e := r.peek()
		if r.err != nil {
			return
		}
		r.rest = r.rest[e.head:]
		switch e.kind {
		case KindArray:
			left += e.value
		case KindMap:
			left += 2 * e.value
		case KindText, KindBinary, KindExtension, KindFloat:
			r.rest = r.rest[e.value:]
		}
		if left-1 > uint64(len(r.rest)) {
			r.Fail("%d elements are missing, and %d bytes are left", left-1, len(r.rest))
		}
	}
}
