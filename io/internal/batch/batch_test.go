// SPDX-License-Identifier: MIT

package batch

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/io/internal/errs"
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
		if errors.Is(err, errs.ErrInvalid) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// moved returns what the ops of b copy, as a map from remote to local byte.
func moved(t *testing.T, b *Batch, to *Target) map[uint64]uint64 {
	t.Helper()
	out := map[uint64]uint64{}
	for i := range b.Ops {
		op := b.Ops[i]
		if n := op.Blocks; n != nil && (n.Len() > to.BlockMax || n.LocalEnd() > op.Seg.Len || n.RemoteEnd() > op.RSeg.Len) {
			t.Fatalf("%d blocks up to %d and %d in %d and %d bytes", n.Len(), n.LocalEnd(), n.RemoteEnd(), op.Seg.Len, op.RSeg.Len)
		}
		op.Spread()
		segs := append([]fabric.Seg{op.Seg}, op.More...)
		rsegs := append([]fabric.RSeg{op.RSeg}, op.RMore...)
		if op.Len() == 0 || op.Len() > to.OpMax || len(segs) > to.SegMax || len(segs) != len(rsegs) {
			t.Fatalf("op %d has %d bytes in %d and %d segments", i, op.Len(), len(segs), len(rsegs))
		}
		for j, s := range segs {
			if s.Len != rsegs[j].Len || s.MR != to.MR || rsegs[j].Key != to.Key {
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
	b, asBlocks := new(Batch), 0
	for range 600 {
		to := &Target{Local: 1 << 20, Remote: 1 << 30, MR: 3, Key: 5, OpMax: 1 + rng.Uint64N(50), SegMax: 1 + rng.IntN(5)}
		if rng.IntN(2) == 0 { // all in one op
			to.OpMax, to.SegMax = 100_000, 100
		}
		even := uint64(0)
		if rng.IntN(2) == 0 { // of one size, as blocks need
			even, to.BlockMax = 1+rng.Uint64N(40), rng.IntN(2)*100
		}
		var lo, ro, sz []uint64
		want := map[uint64]uint64{}
		var l, r uint64
		for range rng.IntN(20) + int(even) {
			if rng.IntN(2) == 0 || even > 20 { // else contiguous with the previous one
				l, r = l+rng.Uint64N(9), r+rng.Uint64N(9)
			}
			n := rng.Uint64N(40)
			if even > 0 {
				n = even
			}
			lo, ro, sz = append(lo, l), append(ro, r), append(sz, n)
			for k := range n {
				want[to.Remote+r+k] = to.Local + l + k
			}
			l, r = l+n, r+n
		}
		e := Entries{Local: lo, Remote: ro, Sizes: sz}
		total, err := b.Accept(&e, 1<<40, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		b.Build(fabric.OpWrite, to, total, &e)
		if len(b.Ops) == 1 && b.Ops[0].Blocks != nil {
			asBlocks++
			if rng.IntN(2) == 0 { // another path does not support blocks
				next := *to
				next.Remote, next.Key, next.BlockMax, next.SegMax = 1<<31, 6, 0, 3
				b.Rebase(to, &next)
				there := map[uint64]uint64{}
				for k, v := range want {
					there[k-to.Remote+next.Remote] = v
				}
				to, want = &next, there
			}
		}
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
	if asBlocks < 20 {
		t.Errorf("%d batches were of blocks", asBlocks)
	}
}

// TestOneOfManyOutside checks that entries of one size are compared by the furthest, and that the
// error names the first invalid one.
func TestOneOfManyOutside(t *testing.T) {
	const n, size = 100, 64
	for _, c := range []struct {
		at      int
		lo, ro  uint64
		ends    uint64 // of both regions
		want    string
		unequal int
	}{
		{ends: n * size},
		{at: 3, lo: (n-1)*size + 1, ends: n * size, want: "entry 3, local offset 6337 + 64 bytes"},
		{at: 99, ro: n * size, ends: n * size, want: "entry 99, remote offset 6400 + 64 bytes"},
		{at: 50, ro: 1<<64 - 1, ends: n * size, want: "entry 50, remote offset 18446744073709551615"},
		{at: 50, lo: 1<<64 - 64, ends: n * size, want: "entry 50, local offset 18446744073709551552"},
		{ends: size - 1, want: "entry 0, local offset 0"},
		{ends: n * size, unequal: 1, want: "100 local offsets, 99 remote offsets"},
	} {
		for _, one := range []bool{false, true} {
			e := Entries{Size: size, One: one}
			for i := range uint64(n) {
				e.Local, e.Remote = append(e.Local, i*size), append(e.Remote, (n-1-i)*size)
				if !one {
					e.Sizes = append(e.Sizes, size)
				}
			}
			e.Local[c.at], e.Remote[c.at] = max(e.Local[c.at], c.lo), max(e.Remote[c.at], c.ro)
			e.Remote = e.Remote[:n-c.unequal]
			total, err := new(Batch).Accept(&e, c.ends, c.ends)
			if c.want == "" && (err != nil || total != n*size) || c.want != "" && (!errors.Is(err, errs.ErrInvalid) || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("%d, %v; want %q", total, err, c.want)
			}
		}
	}
	for _, size := range []uint64{0, maxEntry + 1} {
		e := Entries{Local: make([]uint64, n), Remote: make([]uint64, n), Size: size, One: true}
		if total, err := new(Batch).Accept(&e, 1<<40, 1<<40); total != 0 || (err == nil) != (size == 0) {
			t.Errorf("entries of %d bytes: %d, %v", size, total, err)
		}
	}
}

func TestContiguousEntriesBecomeOneSegment(t *testing.T) {
	b, to := new(Batch), &Target{OpMax: 1 << 30, SegMax: 64}
	var lo, ro, sz []uint64
	for i := range uint64(16) {
		lo, ro, sz = append(lo, i*10), append(ro, 500+i*10), append(sz, 10)
	}
	b.Build(fabric.OpRead, to, 160, &Entries{Local: lo, Remote: ro, Sizes: sz})
	if len(b.Ops) != 1 || len(b.segs) != 1 || b.segs[0].Len != 160 {
		t.Errorf("%d ops, segments %+v; want one of 160 bytes", len(b.Ops), b.segs)
	}
}

// BenchmarkBuild builds ops of random blocks of 4 KiB: for a network, and for GPUs, which take them
// in one op, as segments and as blocks. The figures are of the best round; ratio compares with the
// time of copying the offsets.
func BenchmarkBuild(b *testing.B) {
	for name, c := range map[string]struct {
		n  uint64
		to Target
	}{
		"1000":              {1000, Target{OpMax: 1 << 20, SegMax: 1024}},
		"8192 for a GPU":    {8192, Target{OpMax: 256 << 20, SegMax: 32768, MR: 1}},
		"8192 as blocks":    {8192, Target{OpMax: 256 << 20, SegMax: 32768, BlockMax: 32768, MR: 1}},
		"8192 of two sizes": {8192, Target{OpMax: 256 << 20, SegMax: 32768, MR: 1}},
	} {
		b.Run(name, func(b *testing.B) {
			var lo, ro, sz []uint64
			for i := range c.n {
				lo, ro, sz = append(lo, i*8192), append(ro, (c.n-1-i)*8192), append(sz, 4096)
			}
			if name == "8192 of two sizes" {
				sz[c.n-1] = 2048
			}
			out, raw, copies := new(Batch), time.Hour, make([]uint64, 2*c.n)
			for range 100 {
				begin := time.Now()
				copy(copies, lo)
				copy(copies[c.n:], ro)
				raw = min(raw, time.Since(begin))
			}
			b.ReportAllocs()
			best := time.Hour
			for b.Loop() {
				begin := time.Now()
				e := Entries{Local: lo, Remote: ro, Sizes: sz}
				total, err := out.Accept(&e, 1<<30, 1<<30)
				if err != nil {
					b.Fatal(err)
				}
				out.Build(fabric.OpWrite, &c.to, total, &e)
				best = min(best, time.Since(begin))
			}
			b.ReportMetric(float64(best)/float64(c.n), "ns/entry")
			b.ReportMetric(float64(raw)/float64(best), "ratio")
		})
	}
}
