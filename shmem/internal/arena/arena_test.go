// SPDX-License-Identifier: MIT

package arena

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// A mirror is the slow, obvious Arena that alloc is held against: a map of every Grain.
type mirror struct {
	taken []bool // by Grain
	sizes map[uint64]int
}

func newMirror(size uint64) *mirror {
	m := &mirror{taken: make([]bool, size/Grain), sizes: map[uint64]int{}}
	for i := range Reserved / Grain {
		m.taken[i] = true
	}
	return m
}

// runs calls f with each free run of grains, first Grain and length.
func (m *mirror) runs(f func(at, n int)) {
	for i := 0; i < len(m.taken); i++ {
		from := i
		for i < len(m.taken) && !m.taken[i] {
			i++
		}
		if i > from {
			f(from, i-from)
		}
	}
}

// alloc is the first place in the shortest run that is long enough.
func (m *mirror) alloc(size, align uint64) (uint64, bool) {
	want := int((size + Grain - 1) / Grain)
	best, where := 1<<60, -1
	m.runs(func(at, n int) {
		for i := at; i+want <= at+n; i++ {
			if uint64(i*Grain)%max(align, Grain) == 0 {
				if n < best {
					best, where = n, i
				}
				return
			}
		}
	})
	if where < 0 {
		return 0, false
	}
	for i := range want {
		m.taken[where+i] = true
	}
	m.sizes[uint64(where*Grain)] = want
	return uint64(where * Grain), true
}

func (m *mirror) release(at uint64) bool {
	n, ok := m.sizes[at]
	for i := range n {
		m.taken[int(at/Grain)+i] = false
	}
	delete(m.sizes, at)
	return ok
}

// same compares the free parts, and so that neighbours are joined.
func (m *mirror) same(t *testing.T, a *Arena) {
	t.Helper()
	var i int
	used, longest := uint64(0), 0
	m.runs(func(at, n int) {
		if i >= len(a.free) || a.free[i] != (extent{uint64(at * Grain), uint64(n * Grain)}) {
			t.Fatalf("free part %d: want %d grains at %d, have %v", i, n, at, a.free)
		}
		i++
		longest = max(longest, n)
	})
	for _, n := range m.sizes {
		used += uint64(n * Grain)
	}
	if i != len(a.free) || used != a.used || len(a.live) != len(m.sizes) || a.size == a.limit && a.Largest() != uint64(longest*Grain) {
		t.Fatalf("%d free parts, %d bytes used, %d live, largest %d; want %d, %d, %d, %d", len(a.free), a.used, len(a.live), a.Largest(), i, used, len(m.sizes), longest*Grain)
	}
}

// drive runs a program of 4-byte steps on both allocators.
func drive(t *testing.T, program []byte) {
	const size = 1 << 16
	a, m := New(size, size), newMirror(size)
	var held []uint64
	for ; len(program) >= 4; program = program[4:] {
		v := uint64(binary.LittleEndian.Uint16(program[2:]))
		if program[0]&1 == 1 && len(held) > 0 {
			i := int(v) % len(held)
			if _, ok := a.Release(held[i]); !ok || !m.release(held[i]) {
				t.Fatalf("release of %d is refused", held[i])
			}
			held = append(held[:i], held[i+1:]...)
		} else {
			n, align := v+1, uint64(1)<<(program[1]%16)
			at, ok := a.Alloc(n, align)
			want, fits := m.alloc(n, align)
			if at != want || ok != fits {
				t.Fatalf("alloc(%d, %d) = %d, %v; want %d, %v", n, align, at, ok, want, fits)
			}
			if ok {
				held = append(held, at)
			}
		}
		if _, ok := a.Release(v | 1); ok {
			t.Fatalf("an offset that was never given out, %d, was taken back", v|1)
		}
		m.same(t, a)
	}
	for _, at := range held {
		a.Release(at)
	}
	if len(a.free) != 1 || a.free[0] != (extent{Reserved, size - Reserved}) || a.used != 0 {
		t.Fatalf("all was taken back, and yet %+v", a)
	}
}

func TestArenaDoesAsItsModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 1))
	for range 300 {
		program := make([]byte, 4*rnd.IntN(200))
		limit := 1 + rnd.IntN(1<<14)
		for i := 0; i < len(program); i += 4 {
			program[i], program[i+1] = byte(rnd.Uint32()), byte(rnd.Uint32())
			binary.LittleEndian.PutUint16(program[i+2:], uint16(rnd.IntN(limit)))
		}
		drive(t, program)
	}
}

func FuzzArena(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 12, 0, 1, 1, 0, 0, 0, 0, 0, 255, 255})
	f.Add([]byte{0, 15, 1, 0, 0, 14, 1, 0, 0, 13, 1, 0, 1, 0, 1, 0, 0, 0, 0, 80})
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) <= 4096 {
			drive(t, program)
		}
	})
}

func TestArenaGrows(t *testing.T) {
	a := New(4096, 1<<20)
	if _, ok := a.Alloc(8192, 1); ok {
		t.Fatal("more was given out than there is")
	}
	for _, c := range []struct{ size, align, want uint64 }{
		{8192, 1, Reserved + 8192}, {1, 1 << 19, 1<<19 + Grain}, {1<<20 - Reserved, 1, 1 << 20}, {1 << 20, 1, 0}, {1, 1 << 20, 0}, {^uint64(0), 1, 0},
		{1, 1 << 63, 0}, {1 << 63, 1 << 63, 0},
	} {
		if got := a.Need(c.size, c.align); got != c.want {
			t.Errorf("%d bytes aligned to %d need a heap of %d, want %d", c.size, c.align, got, c.want)
		}
	}
	if n := a.Largest(); n != 1<<20-Reserved {
		t.Errorf("at most %d in one part", n)
	}
	a.Grow(a.Need(8192, 1))
	if at, ok := a.Alloc(8192, 1); !ok || at != Reserved || len(a.free) != 0 {
		t.Errorf("%d, %v after growing; free are %v", at, ok, a.free)
	}
	if n := a.Largest(); n != 1<<20-Reserved-8192 {
		t.Errorf("at most %d in one part, when full", n)
	}
}

func TestArenaRefusesWhatCannotBe(t *testing.T) {
	a := New(1<<16, 1<<16)
	for _, c := range [][2]uint64{{^uint64(0), 1}, {1 << 16, 1}, {1, 1 << 63}, {1 << 63, 1 << 63}, {1, 1 << 16}} {
		if at, ok := a.Alloc(c[0], c[1]); ok {
			t.Errorf("%d bytes aligned to %d were given out at %d", c[0], c[1], at)
		}
	}
	if tiny := New(100, 100); tiny.Largest() != 0 {
		t.Errorf("%d bytes free in a heap that is smaller than its Reserved part", tiny.Largest())
	}
}

func BenchmarkArena(b *testing.B) {
	a := New(4<<30, 4<<30)
	var held []uint64
	for i := range 2000 { // every other one is free
		at, _ := a.Alloc(uint64(1+i%7)<<12, 1)
		held = append(held, at)
	}
	for i := 0; i < len(held); i += 2 {
		a.Release(held[i])
	}
	for b.Loop() {
		at, _ := a.Alloc(5000, 1)
		a.Release(at)
	}
}
