// SPDX-License-Identifier: MIT

package fabric

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

func TestBlocksRefuseWhatIsNone(t *testing.T) {
	for what, c := range map[string]struct {
		size uint64
		lo   []uint64
		ro   []uint64
	}{
		"no block":               {64, nil, nil},
		"no size":                {0, []uint64{1}, []uint64{2}},
		"more here than there":   {64, []uint64{1, 2}, []uint64{2}},
		"more there than here":   {64, []uint64{1}, []uint64{2, 3}},
		"beyond the end here":    {64, []uint64{5, math.MaxUint64 - 63}, []uint64{2, 3}},
		"beyond the end there":   {64, []uint64{1, 2}, []uint64{math.MaxUint64, 3}},
		"a total beyond the end": {1 << 63, []uint64{1, 2}, []uint64{3, 4}},
	} {
		b := new(Blocks)
		if err := b.Set(c.size, c.lo, c.ro); !errors.Is(err, ErrInvalid) || b.Size() != 0 || b.Bytes() != 0 || b.Len() != min(len(c.lo), len(c.ro)) {
			t.Errorf("%s: %v, %+v", what, err, b)
		}
	}
}

func TestBlocksKeepTheirOffsets(t *testing.T) {
	b := new(Blocks)
	lo, ro := []uint64{300, 100, 110, 120, 0}, []uint64{0, 500, 510, 515, 20}
	for range 2 { // in room of its own, then in the same
		if err := b.Set(10, lo, ro); err != nil {
			t.Fatal(err)
		}
		if b.Bytes() != 50 || b.LocalEnd() != 310 || b.RemoteEnd() != 525 || b.Joined() != 1 || !slices.Equal(b.Local(), lo) || !slices.Equal(b.Remote(), ro) {
			t.Errorf("%+v", b)
		}
	}
	lo[0], ro[0] = 7, 7 // the caller's
	op := Op{Kind: OpRead, Blocks: b, Seg: Seg{Addr: 1000, Len: 310, MR: 3}, RSeg: RSeg{Addr: 2000, Len: 525, Key: 4}}
	if op.Len() != 50 || op.RLen() != 50 {
		t.Errorf("%d and %d bytes", op.Len(), op.RLen())
	}
	op.Spread()
	if got, want := append([]Seg{op.Seg}, op.More...), []Seg{{1300, 10, 3}, {1100, 20, 3}, {1120, 10, 3}, {1000, 10, 3}}; !slices.Equal(got, want) {
		t.Errorf("local segments %v, want %v", got, want)
	}
	if got, want := append([]RSeg{op.RSeg}, op.RMore...), []RSeg{{2000, 10, 4}, {2500, 20, 4}, {2515, 10, 4}, {2020, 10, 4}}; !slices.Equal(got, want) {
		t.Errorf("remote segments %v, want %v", got, want)
	}
	if op.Blocks != nil || op.Len() != 50 || op.RLen() != 50 {
		t.Errorf("%d and %d bytes in segments", op.Len(), op.RLen())
	}
}

func TestBlocksDoNotAllocateTwice(t *testing.T) {
	b, at := new(Blocks), make([]uint64, 1000)
	if n := testing.AllocsPerRun(20, func() { _ = b.Set(8, at, at) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkBlocks is what a caller pays for 8192 blocks, in the best of its rounds; ratio is to
// copying their offsets.
func BenchmarkBlocks(b *testing.B) {
	const n = 8192
	at, there, to := make([]uint64, n), make([]uint64, n), make([]uint64, 2*n)
	for i := range at {
		at[i], there[i] = uint64(i)*8192, uint64(n-i)*8192
	}
	blocks, best, raw := new(Blocks), time.Hour, time.Hour
	for b.Loop() {
		begin := time.Now()
		copy(to, at)
		copy(to[n:], there)
		copied := time.Now()
		if err := blocks.Set(4096, at, there); err != nil {
			b.Fatal(err)
		}
		raw, best = min(raw, copied.Sub(begin)), min(best, time.Since(copied))
	}
	b.ReportMetric(float64(best)/n, "ns/entry")
	b.ReportMetric(float64(raw)/float64(best), "ratio")
}
