// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"math/rand/v2"
	"testing"

	"mori/core/fabric"
)

func TestCheckEntries(t *testing.T) {
	const top = 1<<64 - 1
	for name, c := range map[string]struct {
		lo, ro, sz []uint64
		bad        bool
	}{
		"all of it":              {[]uint64{0}, []uint64{0}, []uint64{100}, false},
		"nothing at the end":     {[]uint64{100}, []uint64{200}, []uint64{0}, false},
		"one past the local end": {[]uint64{1}, []uint64{0}, []uint64{100}, true},
		"one past the remote":    {[]uint64{0}, []uint64{101}, []uint64{100}, true},
		"offset that wraps":      {[]uint64{top}, []uint64{0}, []uint64{2}, true},
		"size that wraps":        {[]uint64{2}, []uint64{2}, []uint64{top}, true},
		"more than 4 GiB":        {[]uint64{0}, []uint64{0}, []uint64{1 << 32}, true},
		"fewer offsets":          {[]uint64{0}, []uint64{0, 1}, []uint64{1, 1}, true},
		"fewer sizes":            {[]uint64{0, 1}, []uint64{0, 1}, []uint64{1}, true},
		"second entry bad":       {[]uint64{0, 99}, []uint64{0, 0}, []uint64{1, 2}, true},
	} {
		_, err := checkEntries(c.lo, c.ro, c.sz, 100, 200)
		if errors.Is(err, ErrInvalid) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// moved replays the ops of b as a map from remote to local byte.
func moved(t *testing.T, b *batch, to *target) map[uint64]uint64 {
	t.Helper()
	out := map[uint64]uint64{}
	for i := range b.ops {
		op := &b.ops[i]
		segs := append([]fabric.Seg{op.Seg}, op.More...)
		rsegs := append([]fabric.RSeg{op.RSeg}, op.RMore...)
		if op.Len() == 0 || op.Len() > to.opMax || len(segs) > to.segMax || len(segs) != len(rsegs) {
			t.Fatalf("op %d has %d bytes in %d and %d segments", i, op.Len(), len(segs), len(rsegs))
		}
		for j, s := range segs {
			if s.Len != rsegs[j].Len || s.MR != to.mr || rsegs[j].Key != to.key {
				t.Fatalf("segment %d of op %d: %d local, %d remote bytes", j, i, s.Len, rsegs[j].Len)
			}
			for k := range s.Len {
				out[rsegs[j].Addr+k] = s.Addr + k
			}
		}
	}
	return out
}

func TestBuildMovesEveryByteOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := new(batch)
	for range 300 {
		to := &target{local: 1 << 20, remote: 1 << 30, mr: 3, key: 5, opMax: 1 + rng.Uint64N(50), segMax: 1 + rng.IntN(5)}
		if rng.IntN(2) == 0 { // all in one op
			to.opMax, to.segMax = 1000, 20
		}
		var lo, ro, sz []uint64
		want := map[uint64]uint64{}
		var l, r uint64
		for range rng.IntN(20) {
			if rng.IntN(2) == 0 { // else contiguous with the one before
				l, r = l+rng.Uint64N(9), r+rng.Uint64N(9)
			}
			n := rng.Uint64N(40)
			lo, ro, sz = append(lo, l), append(ro, r), append(sz, n)
			for k := range n {
				want[to.remote+r+k] = to.local + l + k
			}
			l, r = l+n, r+n
		}
		total, err := checkEntries(lo, ro, sz, 1<<40, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		b.build(fabric.OpWrite, to, total, lo, ro, sz)
		got := moved(t, b, to)
		if len(got) != len(want) {
			t.Fatalf("%d bytes moved, want %d", len(got), len(want))
		}
		for k, v := range want {
			if got[k] != v {
				t.Fatalf("remote byte %d comes from %d, want %d", k, got[k], v)
			}
		}
	}
}

func TestContiguousEntriesBecomeOneSegment(t *testing.T) {
	b, to := new(batch), &target{opMax: 1 << 30, segMax: 64}
	var lo, ro, sz []uint64
	for i := range uint64(16) {
		lo, ro, sz = append(lo, i*10), append(ro, 500+i*10), append(sz, 10)
	}
	b.build(fabric.OpRead, to, 160, lo, ro, sz)
	if len(b.ops) != 1 || len(b.segs) != 1 || b.segs[0].Len != 160 {
		t.Errorf("%d ops, segments %+v; want one of 160 bytes", len(b.ops), b.segs)
	}
}

// BenchmarkBuild makes ops of random blocks of 4 KiB: for a network, and for GPUs, which take them in one.
func BenchmarkBuild(b *testing.B) {
	for name, c := range map[string]struct {
		n  uint64
		to target
	}{"1000": {1000, target{opMax: 1 << 20, segMax: minOpSegs}}, "8192 for a GPU": {8192, target{opMax: 256 << 20, segMax: 32768, mr: 1}}} {
		b.Run(name, func(b *testing.B) {
			var lo, ro, sz []uint64
			for i := range c.n {
				lo, ro, sz = append(lo, i*8192), append(ro, (c.n-1-i)*8192), append(sz, 4096)
			}
			out := new(batch)
			b.ReportAllocs()
			for b.Loop() {
				total, err := checkEntries(lo, ro, sz, 1<<30, 1<<30)
				if err != nil {
					b.Fatal(err)
				}
				out.build(fabric.OpWrite, &c.to, total, lo, ro, sz)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.n), "ns/block")
		})
	}
}
