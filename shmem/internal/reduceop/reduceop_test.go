// SPDX-License-Identifier: MIT

package reduceop

import (
	"math"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
)

func TestFloat16Converts(t *testing.T) {
	for h := range 1 << 16 {
		f := FromFloat16(uint16(h))
		if back := ToFloat16(f); back != uint16(h) && !(f != f && back&0x7c00 == 0x7c00 && back&0x3ff != 0) {
			t.Fatalf("%#x is %v, and %#x again", h, f, back)
		}
		if h < 0x7bff { // the next one is finite, too
			low, high := float64(f), float64(FromFloat16(uint16(h+1)))
			middle := float32((low + high) / 2)
			if got := ToFloat16(middle); got != uint16(h+h&1) {
				t.Fatalf("%v, in the middle of %#x and the next one, is %#x", middle, h, got)
			}
			if got := ToFloat16(math.Nextafter32(middle, 0)); got != uint16(h) {
				t.Fatalf("just below %v is %#x, want %#x", middle, got, h)
			}
			if got := ToFloat16(math.Nextafter32(middle, 1e9)); got != uint16(h+1) {
				t.Fatalf("just above %v is %#x, want %#x", middle, got, h+1)
			}
		}
	}
	for f, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00, -1e30: 0xfc00, 1e-30: 0, 1: 0x3c00, -2: 0xc000} {
		if got := ToFloat16(f); got != want {
			t.Errorf("%v is %#x, want %#x", f, got, want)
		}
	}
}

func TestBFloat16Converts(t *testing.T) {
	for h := range 1 << 16 {
		f := FromBFloat16(uint16(h))
		if back := ToBFloat16(f); back != uint16(h) && !(f != f && back&0x7f80 == 0x7f80 && back&0x7f != 0) {
			t.Fatalf("%#x is %v, and %#x again", h, f, back)
		}
	}
	for bits, want := range map[uint32]uint16{0x3f808000: 0x3f80, 0x3f818000: 0x3f82, 0x3f808001: 0x3f81, 0x7f7fffff: 0x7f80, 0x7f800001: 0x7fc0} {
		if got := ToBFloat16(math.Float32frombits(bits)); got != want {
			t.Errorf("%#x is %#x, want %#x", bits, got, want)
		}
	}
}

func TestNaNsSurvive(t *testing.T) {
	room := make([]byte, 3*16)
	d, a, b := memory.AddrOf(room), memory.AddrOf(room)+16, memory.AddrOf(room)+32
	copy(memory.Slice[float64](a, 2), []float64{math.NaN(), 1})
	copy(memory.Slice[float64](b, 2), []float64{1, math.NaN()})
	for _, op := range []Op{Min, Max, Sum, Prod} {
		funcs[op][fabric.Float64](d, 0, []uint64{a, b}, 2)
		if got := memory.Slice[float64](d, 2); !math.IsNaN(got[0]) || !math.IsNaN(got[1]) {
			t.Errorf("%v with NaN is %v", op, got)
		}
	}
}
