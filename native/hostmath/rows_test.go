// SPDX-License-Identifier: MIT

package hostmath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Sizes around every size of store, and that of a row of DeepSeek-V3.
var rowSizes = []int{0, 1, 3, 4, 7, 15, 16, 31, 33, 63, 64, 65, 127, 200, 256, 511, 513, 1000, 4099, 14336}

func randomBytes(rng *rand.Rand, b []byte) []byte {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestGatherAndScatterRows(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(2, 3))
		for _, size := range rowSizes {
			for range 4 {
				from, to := 1+rng.IntN(9), 1+rng.IntN(9)
				src := randomBytes(rng, guarded(t, from*size, rng.IntN(70)))
				dst := randomBytes(rng, guarded(t, to*size, rng.IntN(70)))
				want := slices.Clone(dst)
				idx := make([]int32, to)
				for i := range idx {
					if idx[i] = int32(rng.IntN(from+2) - 2); idx[i] >= 0 {
						copy(want[i*size:(i+1)*size], src[int(idx[i])*size:])
					}
				}
				GatherRows(addr(dst), addr(src), uint64(size), idx)
				if !bytes.Equal(dst, want) {
					t.Fatalf("gather %d rows of %d bytes by %v is wrong", to, size, idx)
				}
				scatterBack(t, rng, size, from, to)
			}
		}
	})
}

// scatterBack scatters from rows over to others, some of them nowhere.
func scatterBack(t *testing.T, rng *rand.Rand, size, from, to int) {
	t.Helper()
	src := randomBytes(rng, guarded(t, from*size, rng.IntN(70)))
	dst := randomBytes(rng, guarded(t, to*size, rng.IntN(70)))
	want := slices.Clone(dst)
	idx := make([]int32, from)
	for i := range idx {
		if idx[i] = int32(rng.IntN(to+2) - 2); idx[i] >= 0 {
			copy(want[int(idx[i])*size:(int(idx[i])+1)*size], src[i*size:])
		}
	}
	ScatterRows(addr(dst), addr(src), uint64(size), idx)
	if !bytes.Equal(dst, want) {
		t.Fatalf("scatter %d rows of %d bytes by %v is wrong", from, size, idx)
	}
}

func TestCopyRows(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(4, 5))
		for _, size := range rowSizes {
			for _, gap := range []struct{ dst, src int }{{0, 0}, {5, 0}, {0, 64}, {17, 3}} {
				n := 1 + rng.IntN(4)
				src := randomBytes(rng, guarded(t, n*(size+gap.src), rng.IntN(70)))
				dst := randomBytes(rng, guarded(t, n*(size+gap.dst), rng.IntN(70)))
				want := slices.Clone(dst)
				for i := range n {
					copy(want[i*(size+gap.dst):][:size], src[i*(size+gap.src):])
				}
				CopyRows(addr(dst), uint64(size+gap.dst), addr(src), uint64(size+gap.src), uint64(size), uint64(n))
				if !bytes.Equal(dst, want) {
					t.Fatalf("copy %d rows of %d bytes with gaps %+v is wrong", n, size, gap)
				}
			}
		}
		CopyRows(0, 8, 0, 8, 8, 0)
	})
}

// The C library copies otherwise what is larger than its caches.
func TestLargeCopiesArriveWhole(t *testing.T) {
	onEachVariant(t, func(t *testing.T) {
		const size, n = 4099, 3000
		rng := rand.New(rand.NewPCG(6, 7))
		src := randomBytes(rng, guarded(t, size*n, 1))
		idx := make([]int32, n)
		for i, p := range rng.Perm(n) {
			idx[i] = int32(p)
		}
		dst, back := guarded(t, size*n, 3), guarded(t, size*n, 0)
		GatherRows(addr(dst), addr(src), size, idx)
		for i, p := range idx {
			if !bytes.Equal(dst[i*size:(i+1)*size], src[int(p)*size:(int(p)+1)*size]) {
				t.Fatalf("row %d of a large gather is wrong", i)
			}
		}
		ScatterRows(addr(back), addr(dst), size, idx)
		if !bytes.Equal(back, src) {
			t.Error("a large scatter does not undo the gather")
		}
		CopyRows(addr(dst), size, addr(src), size, size, n)
		if !bytes.Equal(dst, src) {
			t.Error("a large copy is wrong")
		}
	})
}

func TestCountExperts(t *testing.T) {
	ids := []int32{8, 9, 8, -1, 7, 12, 11, math.MaxInt32, math.MinInt32, 8}
	b := guarded(t, 4*len(ids), 1)
	for i, id := range ids {
		binary.NativeEndian.PutUint32(b[4*i:], uint32(id))
	}
	counts := []int32{100, 0, 0, 0}
	if err := CountExperts(counts, addr(b), 5, 2, 8); err != nil {
		t.Fatal(err)
	}
	if want := []int32{103, 1, 0, 1}; !slices.Equal(counts, want) {
		t.Errorf("counts are %v, want %v: those there already, and those of experts 8 to 11", counts, want)
	}
	if err := CountExperts(nil, addr(b), 5, 2, 8); err != nil {
		t.Errorf("no expert: %v", err)
	}
	if err := CountExperts(counts, addr(b), -1, 2, 8); !errors.Is(err, ErrShape) {
		t.Errorf("rows less than none: %v, want ErrShape", err)
	}
	if err := CountExperts(counts, addr(b), math.MaxInt, 2, 8); !errors.Is(err, ErrShape) {
		t.Errorf("more ids than memory can hold: %v, want ErrShape", err)
	}
}
