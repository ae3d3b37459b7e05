// SPDX-License-Identifier: MIT

package util

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"mori/core/fabric"
)

func TestCheckOp(t *testing.T) {
	lim := &fabric.Limits{MaxMsg: 1000, MaxInject: 64, SegLimit: 3, RSegLimit: 2}
	seg := func(n uint64) fabric.Seg { return fabric.Seg{Addr: 4096, Len: n} }
	far := func(n uint64) fabric.RSeg { return fabric.RSeg{Addr: 0, Len: n, Key: 5} }
	for _, c := range []struct {
		name string
		op   fabric.Op
		want error
	}{
		{"send", fabric.Op{Kind: fabric.OpSend, Seg: seg(1000)}, nil},
		{"send nothing", fabric.Op{Kind: fabric.OpSend}, nil},
		{"write", fabric.Op{Kind: fabric.OpWrite, Seg: seg(9), RSeg: far(9)}, nil},
		{"read", fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpFence, Seg: seg(9), RSeg: far(9)}, nil},
		{"cut differently", fabric.Op{Kind: fabric.OpRead, Seg: seg(1), More: []fabric.Seg{seg(0), seg(8)}, RSeg: far(7), RMore: []fabric.RSeg{far(2)}}, nil},
		{"receive of any size", fabric.Op{Kind: fabric.OpRecv, Seg: seg(5000)}, nil},
		{"kind 0", fabric.Op{}, fabric.ErrInvalid},
		{"a completion's kind", fabric.Op{Kind: fabric.OpRemoteWrite}, fabric.ErrInvalid},
		{"kind 200", fabric.Op{Kind: 200}, fabric.ErrInvalid},
		{"unknown flag", fabric.Op{Kind: fabric.OpSend, Flags: 1 << 12}, fabric.ErrBadFlags},
		{"inject a read", fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpInject}, fabric.ErrBadFlags},
		{"remote data with a read", fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpRemoteData}, fabric.ErrBadFlags},
		{"fence a receive", fabric.Op{Kind: fabric.OpRecv, Flags: fabric.OpFence}, fabric.ErrBadFlags},
		{"too long", fabric.Op{Kind: fabric.OpSend, Seg: seg(1001)}, fabric.ErrMsgSize},
		{"inject too long", fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpInject, Seg: seg(65)}, fabric.ErrMsgSize},
		{"too many local segments", fabric.Op{Kind: fabric.OpSend, More: make([]fabric.Seg, 3)}, fabric.ErrInvalid},
		{"too many remote segments", fabric.Op{Kind: fabric.OpRead, RMore: make([]fabric.RSeg, 2)}, fabric.ErrInvalid},
		{"lengths differ", fabric.Op{Kind: fabric.OpWrite, Seg: seg(9), RSeg: far(8)}, fabric.ErrInvalid},
		{"send at a level", fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpDeliveryComplete}, nil},
		{"inject at a level", fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpInject | fabric.OpDeliveryComplete}, nil},
		{"write at a level", fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpTransmitComplete}, nil},
		{"read at a level", fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpInjectComplete}, nil},
		{"two levels", fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpInjectComplete | fabric.OpDeliveryComplete}, fabric.ErrBadFlags},
		{"all levels", fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpLevels}, fabric.ErrBadFlags},
		{"receive at a level", fabric.Op{Kind: fabric.OpRecv, Flags: fabric.OpDeliveryComplete}, fabric.ErrBadFlags},
		{"send with an atomic", fabric.Op{Kind: fabric.OpSend, Atomic: &fabric.Atomic{}}, fabric.ErrInvalid},
		{"send to a region", fabric.Op{Kind: fabric.OpSend, Seg: seg(9), RSeg: far(9)}, fabric.ErrInvalid},
		{"two regions", fabric.Op{Kind: fabric.OpRead, Seg: seg(9), RSeg: far(8), RMore: []fabric.RSeg{{Len: 1, Key: 6}}}, fabric.ErrInvalid},
		{"nil", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Len: 1}}, fabric.ErrInvalid},
		{"local wrap", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: math.MaxUint64, Len: 2}}, fabric.ErrInvalid},
		{"local sum wraps", fabric.Op{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: 1, Len: math.MaxUint64 - 1}, More: []fabric.Seg{seg(9)}}, fabric.ErrInvalid},
		{"remote sum wraps", fabric.Op{Kind: fabric.OpRead, Seg: seg(8), RSeg: far(math.MaxUint64), RMore: []fabric.RSeg{far(9)}}, fabric.ErrInvalid},
	} {
		n, err := CheckOpLen(&c.op, lim)
		if !errors.Is(err, c.want) || err == nil && n != c.op.Len() {
			t.Errorf("%s: %d bytes, %v, want %v", c.name, n, err, c.want)
		}
	}
}

// cuts splits n into random pieces, some of them empty.
func cuts(rng *rand.Rand, n uint64) []uint64 {
	var out []uint64
	for n > 0 {
		k := rng.Uint64N(min(n, 5) + 1)
		out = append(out, k)
		n -= k
	}
	return append(out, 0)
}

// TestWalk holds a walk against both sides written out byte by byte.
func TestWalk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		n := rng.Uint64N(40)
		op := fabric.Op{}
		var local, remote, gotLocal, gotRemote []uint64
		for i, k := range cuts(rng, n) {
			at := uint64(1000*i + 1000)
			op.More = append(op.More, fabric.Seg{Addr: at, Len: k})
			for j := range k {
				local = append(local, at+j)
			}
		}
		for i, k := range cuts(rng, n) {
			at := uint64(777 * i)
			op.RMore = append(op.RMore, fabric.RSeg{Addr: at, Len: k})
			for j := range k {
				remote = append(remote, at+j)
			}
		}
		w := NewWalk(&op)
		for {
			l, r, k, ok := w.Next()
			if !ok {
				break
			}
			if k == 0 {
				t.Fatal("an empty run")
			}
			for j := range k {
				gotLocal, gotRemote = append(gotLocal, l+j), append(gotRemote, r+j)
			}
		}
		if !equal(local, gotLocal) || !equal(remote, gotRemote) {
			t.Fatalf("%+v: got %v and %v", op, gotLocal, gotRemote)
		}
	}
}

func equal(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
