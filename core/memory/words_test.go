// SPDX-License-Identifier: MIT

package memory

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
)

// word is 8 bytes outside Go's heap.
func word(t *testing.T) uint64 {
	t.Helper()
	seg, err := NewSegment("words", 1<<13, 1<<13)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := seg.Close(); err != nil {
			t.Error(err)
		}
	})
	return seg.Addr() + 64
}

func TestWordsReturnWhatWasThere(t *testing.T) {
	at := word(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		x, v := rng.Uint64(), rng.Uint64()
		for name, c := range map[string]struct{ old, now, want uint64 }{
			"swap": apply64(at, x, func() uint64 { return Swap64(at, v) }, v),
			"and":  apply64(at, x, func() uint64 { return And64(at, v) }, x&v),
			"or":   apply64(at, x, func() uint64 { return Or64(at, v) }, x|v),
			"xor":  apply64(at, x, func() uint64 { return Xor64(at, v) }, x^v),
			"add":  apply64(at, x, func() uint64 { return Add64(at, v) - v }, x+v),
		} {
			if c.old != x || c.now != c.want {
				t.Fatalf("%s of %#x and %#x: was %#x, is %#x, want %#x", name, x, v, c.old, c.now, c.want)
			}
		}
		x, v = x&(1<<32-1), v&(1<<32-1)
		for name, c := range map[string]struct{ old, now, want uint64 }{
			"swap": apply32(at, x, func() uint32 { return Swap32(at, uint32(v)) }, v),
			"and":  apply32(at, x, func() uint32 { return And32(at, uint32(v)) }, x&v),
			"or":   apply32(at, x, func() uint32 { return Or32(at, uint32(v)) }, x|v),
			"xor":  apply32(at, x, func() uint32 { return Xor32(at, uint32(v)) }, x^v),
			"add":  apply32(at, x, func() uint32 { return Add32(at, uint32(v)) - uint32(v) }, uint64(uint32(x+v))),
		} {
			if c.old != x || c.now != c.want {
				t.Fatalf("%s of half words %#x and %#x: was %#x, is %#x, want %#x", name, x, v, c.old, c.now, c.want)
			}
		}
	}
	Store64(at, 5)
	if CompareAndSwap64(at, 4, 9) || !CompareAndSwap64(at, 5, 6) || CompareAndSwap32(at, 5, 7) || !CompareAndSwap32(at, 6, 7) || Load64(at) != 7 {
		t.Errorf("compare and swap: %d is there", Load64(at))
	}
}

func apply64(at, x uint64, op func() uint64, want uint64) (r struct{ old, now, want uint64 }) {
	Store64(at, x)
	r.old, r.now, r.want = op(), Load64(at), want
	return r
}

// apply32 also looks whether the other half stays as it is.
func apply32(at, x uint64, op func() uint32, want uint64) (r struct{ old, now, want uint64 }) {
	const other = 0x1234 << 32
	Store64(at, other|x)
	r.old, r.now, r.want = uint64(op()), Load64(at)^other, want
	return r
}

func TestWordsAreAtomic(t *testing.T) {
	at := word(t)
	const threads, rounds = 4, 10000
	var wait sync.WaitGroup
	for i := range threads {
		wait.Add(1)
		go func() {
			defer wait.Done()
			bit := uint64(1) << (8 + i)
			for range rounds {
				Xor64(at, bit)
				Xor32(at+8, uint32(bit))
				Or64(at+16, bit)
				And64(at+16, ^bit)
				Add32(at+24, 3)
			}
		}()
	}
	wait.Wait()
	if Load64(at) != 0 || Load32(at+8) != 0 || Load64(at+16) != 0 || Load32(at+24) != 3*threads*rounds {
		t.Errorf("%#x %#x %#x %d", Load64(at), Load32(at+8), Load64(at+16), Load32(at+24))
	}
}

func TestMoveOfWhatIsNotThere(t *testing.T) {
	at := word(t)
	for _, bad := range []uint64{8, 0x1000, 1 << 46, 1 << 62, ^uint64(0) - 63} {
		if err := Move(at, bad, 64); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("read %#x: %v", bad, err)
		}
		if err := Move(bad, at, 64); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("write %#x: %v", bad, err)
		}
		for _, size := range []uint64{1, 2, 3, 4, 8, 16} {
			if err := MoveStrided(at, size, bad, size, size, 2); !errors.Is(err, syscall.EFAULT) {
				t.Errorf("read elements of %d bytes at %#x: %v", size, bad, err)
			}
		}
	}
	seg, err := NewSegment("short", 1<<12, 1<<13) // the second page is not there: SIGBUS
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = seg.Close() }()
	if err := Move(at, seg.Addr()+1<<12, 64); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("read behind a segment's end: %v", err)
	}
	if err := Move(at, at+1024, 64); err != nil {
		t.Errorf("it goes on: %v", err)
	}
}

func TestMoveOfWhatOverlaps(t *testing.T) {
	const room = 20 << 20
	seg, err := NewSegment("overlap", room, room)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = seg.Close() }()
	mem := Bytes(seg.Addr(), room)
	pattern := make([]byte, room)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(pattern)
	for _, n := range []uint64{100, 512 << 10, 1<<20 + 3, 3 << 20, 17 << 20} {
		for _, shift := range []uint64{0, 1, 64, 700 << 10, 1 << 20} {
			for _, up := range []bool{true, false} {
				copy(mem, pattern[:n+shift])
				dst, src := uint64(0), shift
				if up {
					dst, src = src, dst
				}
				want := bytes.Clone(mem[:n+shift])
				copy(want[dst:][:n], want[src:][:n])
				if err := Move(seg.Addr()+dst, seg.Addr()+src, n); err != nil || !bytes.Equal(mem[:n+shift], want) {
					t.Fatalf("%d bytes from %d to %d: error %v, other bytes", n, src, dst, err)
				}
			}
		}
	}
}

func TestMoveStrided(t *testing.T) {
	at := word(t)
	mem := Bytes(at, 4096)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		size := uint64(1 + rng.IntN(17))
		count := uint64(rng.IntN(10))
		dstep, sstep := size*uint64(1+rng.IntN(4)), size*uint64(1+rng.IntN(4))
		dst, src := uint64(rng.IntN(600)), 2048+uint64(rng.IntN(600))
		for i := range mem {
			mem[i] = byte(rng.Uint32())
		}
		want := bytes.Clone(mem)
		for i := range count {
			copy(want[dst+i*dstep:][:size], want[src+i*sstep:][:size])
		}
		if err := MoveStrided(at+dst, dstep, at+src, sstep, size, count); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem, want) {
			t.Fatalf("%d elements of %d bytes, %d apart, to %d apart: other bytes", count, size, sstep, dstep)
		}
	}
}
