// SPDX-License-Identifier: MIT

//lint:file-ignore U1000 msgpack finds the _msgpack fields by reflection

package decode

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"mori/core/decode/decodetest"
)

type inner struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused
	Name     string
	Number   int32
}

type outer struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused
	Version  int
	Key      string `max:"8"`
	Wide     uint64
	Narrow   uint16
	Flag     bool
	Raw      []byte
	All      []inner `max:"3"`
}

func TestUnmarshalReadsWhatTheLibraryWrites(t *testing.T) {
	for _, want := range []outer{
		{},
		{Version: -5, Key: "key", Wide: math.MaxUint64, Narrow: math.MaxUint16, Flag: true, Raw: []byte{1, 2}, All: []inner{{Name: "a", Number: math.MinInt32}, {}}},
		{Version: math.MinInt64, Raw: make([]byte, 70_000)},
	} {
		b, err := msgpack.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		var got outer
		if err := Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}

func TestUnmarshalTakesShorterAndLongerArrays(t *testing.T) {
	got := outer{Wide: 7}
	if err := Unmarshal([]byte{0x92, 5, 0xc4, 1, 'k'}, &got); err != nil || got.Version != 5 || got.Key != "k" || got.Wide != 7 {
		t.Errorf("two elements: %+v, %v", got, err)
	}
	var one struct{ N int }
	if err := Unmarshal([]byte{0x93, 1, 0x92, 0x81, 0xa1, 'x', 0xcb, 1, 2, 3, 4, 5, 6, 7, 8, 0xd4, 0, 0, 0xc0}, &one); err != nil || one.N != 1 {
		t.Errorf("surplus elements: %+v, %v", one, err)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	deep := append(bytes.Repeat([]byte{0x91}, 1<<16), 0xc0)
	for name, b := range map[string][]byte{
		"nothing": nil, "a map": {0x81, 1, 2}, "an array that ends early": {0x92, 1}, "0xc1": {0x91, 0xc1}, "a head cut short": {0x91, 0xce, 0, 0},
		"a text for a number": {0x91, 0xa1, 'x'}, "a float for a number": {0x91, 0xca, 0, 0, 0, 0}, "a key of 9 bytes": append([]byte{0x92, 1, 0xa9}, "123456789"...),
		"a binary of 3 GiB": {0x92, 1, 0xc6, 0xc0, 0, 0, 0, 'x'}, "a negative size": {0x93, 1, 0xa0, 0xff}, "65536 in 16 bits": {0x94, 1, 0xa0, 1, 0xce, 0, 1, 0, 0},
		"2^32 elements": {0xdd, 0xff, 0xff, 0xff, 0xff, 1}, "four of at most three": {0x97, 1, 0xa0, 1, 1, 0xc2, 0xc0, 0x94, 0x90, 0x90, 0x90, 0x90},
		"a map of 2^31 pairs behind": {0x98, 1, 0xa0, 1, 1, 0xc2, 0xc0, 0xc0, 0xdf, 0x80, 0, 0, 0}, "an int64 from 2^64-1": {0x91, 0xcf, 255, 255, 255, 255, 255, 255, 255, 255},
		"elements that are not there": {0x98, 1, 0xa0, 1, 1, 0xc2, 0xc0, 0xc0, 0x92, 0x91, 0x91, 0x91}, "65536 arrays in one another": deep,
	} {
		decodetest.Bounded(t, len(b), func() {
			if err := Unmarshal(b, new(outer)); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: %v, want %v", name, err, ErrMalformed)
			}
		})
	}
}

func TestReaderKeepsNothingOfTheMessage(t *testing.T) {
	b := []byte{0x93, 0xa2, 'h', 'i', 0xc4, 2, 'h', 'o', 0xc0}
	r := NewReader(b)
	n, text, raw := r.Array(), r.Text(2), r.Bytes(2)
	clear(b[:len(b)-1])
	if n != 3 || text != "hi" || string(raw) != "ho" || r.Next() != KindNil || !r.Nil() || r.Next() != KindNone || r.Err() != nil {
		t.Errorf("%d elements, %q, %q, %v", n, text, raw, r.Err())
	}
	if r.Int(); !errors.Is(r.Err(), ErrMalformed) {
		t.Errorf("past the end: %v", r.Err())
	}
}

// What Unmarshal takes the library takes as well, with the same fields, unless the values are out
// of range there.
func FuzzUnmarshal(f *testing.F) {
	whole, _ := msgpack.Marshal(&outer{Version: 3, Key: "k", Raw: []byte("raw"), All: []inner{{Name: "n"}}})
	f.Add(whole)
	f.Add([]byte{0x92, 1, 0xc6, 0xc0, 0, 0, 0, 'x'})
	f.Add([]byte{0x98, 1, 0xa0, 1, 1, 0xc2, 0xc0, 0xc0, 0x92, 0x91, 0x91, 0x91})
	f.Fuzz(func(t *testing.T, b []byte) {
		var got outer
		var err error
		was := slices.Clone(b)
		decodetest.Bounded(t, len(b), func() { err = Unmarshal(b, &got) })
		if !bytes.Equal(b, was) {
			t.Fatal("the message was changed")
		}
		if err != nil {
			return
		}
		again, err := msgpack.Marshal(&got)
		if err != nil {
			t.Fatal(err)
		}
		var same outer
		if err := Unmarshal(again, &same); err != nil || !reflect.DeepEqual(got, same) {
			t.Fatalf("%+v is marshalled to %+v, %v", got, same, err)
		}
	})
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{0x9f, 0xdf, 0, 0, 0, 1, 0xa1, 'x', 0xd8})
	f.Fuzz(func(t *testing.T, b []byte) {
		decodetest.Bounded(t, len(b), func() {
			for skip := 0; skip < 3; skip++ {
				r := NewReader(b)
				r.Skip(skip)
				n := r.Array()
				for ; n > 0 && r.Err() == nil; n-- {
					switch r.Next() {
					case KindText, KindBinary:
						_ = r.Bytes(len(b))
					case KindInt:
						_ = r.Int()
					case KindBool:
						_ = r.Bool()
					default:
						r.Skip(1)
					}
				}
				if n > 0 && r.Err() == nil {
					t.Fatalf("%d elements are missing without an error", n)
				}
			}
		})
	})
}
