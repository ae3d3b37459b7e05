// SPDX-License-Identifier: MIT

package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/abi"
)

// The words of a command with a detail.
func detailed(k kind, pe int) uint64 {
	return uint64(k)<<abi.ProxyKindShift | uint64(pe)<<abi.ProxyPlaceBits
}

func terms(op fabric.AtomicOp, word, region, signalRegion uint64) uint64 {
	return uint64(op) | word<<8 | region<<16 | signalRegion<<32
}

// TestWhatDoesNotFitTouchesNothing: each bad command ends, its PE's status says why, and no byte
// changes; others go on.
func TestWhatDoesNotFitTouchesNothing(t *testing.T) {
	const size = 4096
	from := providers["mem"]()
	near, bad, good := newEnd(t, from, size), newEnd(t, from, size), newEnd(t, from, size)
	pattern(near.data, 5)
	q := near.queue(Config{Slots: 8}, bad, good)
	p := &poster{q: q}
	data, words := sys.AddrOf(near.data), terms(fabric.AtomicSum, 8, 1, 1)
	cases := []struct {
		what          string
		cause         fabric.Errno
		first, second uint64
		detail        []uint64
	}{
		{"kind 0", fabric.ErrInvalid, detailed(0, 0), 0, nil},
		{"kind 31", fabric.ErrInvalid, detailed(31, 0), 0, nil},
		{"past the PE's region", fabric.ErrRange, detailed(kindPut, 0) | size - 7, 8 << abi.ProxyPlaceBits, nil},
		{"far past the PE's region", fabric.ErrRange, detailed(kindPut, 0) | placeMask, 8 << abi.ProxyPlaceBits, nil},
		{"more than the PE's region", fabric.ErrRange, detailed(kindGet, 0), (size + 1) << abi.ProxyPlaceBits, nil},
		{"past the local memory", fabric.ErrNoMR, detailed(kindPut, 0), size - 7 | 8<<abi.ProxyPlaceBits, nil},
		{"local memory of nobody", fabric.ErrNoMR, detailed(kindPut, 0), 0, []uint64{8, 0, 8, 0, 0, 0}},
		{"local memory that wraps", fabric.ErrNoMR, detailed(kindGet, 0), 0, []uint64{1<<64 - 4, 0, 8, 0, 0, 0}},
		{"remote memory that wraps", fabric.ErrRange, detailed(kindPut, 0), 0, []uint64{data, 1<<64 - 4, 8, 0, 0, 0}},
		{"region 2 of 2", fabric.ErrInvalid, detailed(kindPut, 0), terms(0, 0, 2, 0), []uint64{data, 0, 8, 0, 0, 0}},
		{"signal region 9", fabric.ErrInvalid, detailed(kindPutSignal, 0), terms(fabric.AtomicWrite, 8, 0, 9), []uint64{data, 0, 8, 1, 0, 0}},
		{"signal by xor", fabric.ErrInvalid, detailed(kindPutSignal, 0), terms(fabric.AtomicBXor, 8, 0, 1), []uint64{data, 0, 8, 1, 0, 0}},
		{"signal not aligned", fabric.ErrInvalid, detailed(kindPutSignal, 0), terms(fabric.AtomicWrite, 8, 0, 1), []uint64{data, 0, 8, 1, 0, 4}},
		{"signal outside", fabric.ErrRange, detailed(kindPutSignal, 0), terms(fabric.AtomicWrite, 8, 0, 1), []uint64{data, 0, 8, 1, 0, wordBytes}},
		{"value of 9 bytes", fabric.ErrInvalid, detailed(kindImmediate, 0), words, []uint64{0, 0, 9, 1, 0, 0}},
		{"atomic of 2 bytes", fabric.ErrInvalid, detailed(kindAtomic, 0), terms(fabric.AtomicSum, 2, 1, 0), []uint64{0, 0, 0, 1, 0, 0}},
		{"atomic 200", fabric.ErrInvalid, detailed(kindAtomic, 0), terms(200, 8, 1, 0), []uint64{0, 0, 0, 1, 0, 0}},
		{"plain compare and swap", fabric.ErrInvalid, detailed(kindAtomic, 0), terms(fabric.AtomicCSwap, 8, 1, 0), []uint64{0, 0, 0, 1, 0, 0}},
		{"atomic not aligned", fabric.ErrInvalid, detailed(kindFetch, 0), words, []uint64{0, 4, 0, 1, 0, 0}},
		{"atomic outside", fabric.ErrRange, detailed(kindFetch, 0), words, []uint64{0, wordBytes - 4, 0, 1, 0, 0}},
		{"atomic without a detail", fabric.ErrInvalid, detailed(kindAtomic, 0), 0, nil},
	}
	for i, c := range cases {
		p.post(c.first, c.second, c.detail...)
		p.put(0, 0, 0, 8) // the PE takes no more
		p.put(1, uint64(8*i), uint64(8*i), 8)
		p.wait(t)
		err := q.Err(0)
		if !errors.Is(err, c.cause) || fabric.Errno(atomic.LoadUint32(&q.places.status[0])) != c.cause {
			t.Fatalf("%s: %v, status %d, want %v", c.what, err, atomic.LoadUint32(&q.places.status[0]), c.cause)
		}
		if atomic.LoadUint64(&q.places.board.Ended)&abi.ProxyTrouble == 0 || q.Err(1) != nil {
			t.Fatalf("%s: board %#x, the other PE %v", c.what, atomic.LoadUint64(&q.places.board.Ended), q.Err(1))
		}
		near.must(q.Reset(0))
		for q.Err(0) != nil {
			time.Sleep(10 * time.Microsecond)
		}
	}
	p.post(detailed(kindPut, 2), 8<<abi.ProxyPlaceBits) // a PE that is not there
	p.put(0, 64, 64, 8)
	p.wait(t)
	near.must(q.Err(0))
	near.same("of the good PE", good.data[:8*len(cases)], near.data[:8*len(cases)])
	want := make([]byte, size)
	copy(want[64:72], near.data[64:])
	near.same("of the bad PE", bad.data, want)
	near.same("words of the bad PE", bad.words, make([]byte, wordBytes))
	if failed := q.Stats().Failed; failed < uint64(2*len(cases)) {
		t.Errorf("%d commands failed, of %d that were bad or behind one", failed, 2*len(cases)+1)
	}
}

// FuzzCommands posts what a kernel gone mad may: every command ends, and nothing outside of the
// regions changes.
func FuzzCommands(f *testing.F) {
	f.Add([]byte{})
	for k := range kindEnd {
		c := abi.ProxyCommand{First: detailed(k, 0) | abi.ProxyHasDetail, Second: terms(fabric.AtomicSum, 8, 1, 1)}
		f.Add(append(abi.Bytes(&c), abi.Bytes(&abi.ProxyDetail{})...))
	}
	r := rand.New(rand.NewPCG(1, 2))
	many := make([]byte, 64*20)
	for i := range many {
		many[i] = byte(r.Uint32())
	}
	f.Add(many)
	f.Fuzz(func(t *testing.T, b []byte) {
		const size, guard = 256, 64
		near, far := memPair(t, size+2*guard)
		for _, e := range []*end{near, far} { // the region is the middle
			e.local[0].Addr, e.local[0].Len = e.local[0].Addr+guard, size
			e.mine[0].Len = size
		}
		pattern(near.data, 6)
		before := bytes.Clone(near.data)
		q := near.queue(Config{Slots: 16}, far)
		p := &poster{q: q}
		decodetest.Bounded(t, len(b), func() { fuzzCommands(p, near, b) })
		for _, part := range [][2]int{{0, guard}, {guard + size, size + 2*guard}} {
			near.same("beside the local region", near.data[part[0]:part[1]], before[part[0]:part[1]])
		}
		near.same("behind the peer's region", far.data[size:], make([]byte, 2*guard))
	})
}

// fuzzCommands posts b, a command and its detail in each part of it, and waits for their ends.
func fuzzCommands(p *poster, near *end, b []byte) {
	for len(b) > 0 {
		var c [abi.ProxyCommandBytes + abi.ProxyDetailBytes]byte
		b = b[copy(c[:], b):]
		var words [len(c) / 8]uint64
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(c[8*i:])
		}
		words[0] &^= uint64(peMask-1) << abi.ProxyPlaceBits // PEs 0 and 1, and all bits but those of a PE that is far away
		p.post(words[0], words[1], words[2:]...)
		if words[0]>>abi.ProxyPlaceBits&1 == 0 && len(b) > 0 && b[0]&1 == 0 {
			near.must(p.q.Reset(0))
		}
	}
	p.wait(near.TB)
}
