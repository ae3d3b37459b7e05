// SPDX-License-Identifier: MIT

package shm

import (
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// bytesOf lists the address of each byte of iov. It is slow and obviously correct.
func bytesOf(iov []sys.Iovec) (addrs []uint64) {
	for _, v := range iov {
		for i := range v.Len {
			addrs = append(addrs, v.Addr+i)
		}
	}
	return addrs
}

func TestWalkHandsOutEveryByteOnce(t *testing.T) {
	seg := func(a, n uint64) fabric.Seg { return fabric.Seg{Addr: a, Len: n} }
	rseg := func(a, n uint64) fabric.RSeg { return fabric.RSeg{Addr: a, Len: n} }
	tests := []struct {
		name string
		op   fabric.Op
	}{
		{"one segment a side", fabric.Op{Seg: seg(100, 50), RSeg: rseg(0, 50)}},
		{"nothing", fabric.Op{Seg: seg(100, 0), RSeg: rseg(7, 0)}},
		{"one against many", fabric.Op{Seg: seg(100, 50), RSeg: rseg(0, 1), RMore: []fabric.RSeg{rseg(9, 2), rseg(20, 47)}}},
		{"many against one", fabric.Op{Seg: seg(100, 3), More: []fabric.Seg{seg(300, 0), seg(200, 7)}, RSeg: rseg(5, 10)}},
		{"empty first segments", fabric.Op{Seg: seg(1, 0), More: []fabric.Seg{seg(200, 0), seg(300, 4)}, RSeg: rseg(2, 0), RMore: []fabric.RSeg{rseg(40, 4)}}},
		{"cut differently", fabric.Op{
			Seg: seg(100, 3), More: []fabric.Seg{seg(200, 5), seg(300, 8)},
			RSeg: rseg(0, 6), RMore: []fabric.RSeg{rseg(50, 1), rseg(60, 9)},
		}},
	}
	for _, tt := range tests {
		for _, limit := range []uint64{1, 3, 7, 1000} {
			for _, room := range []int{1, 2, 64} {
				w := newWalk(&tt.op, tt.op.Len(), 1<<20)
				s := slice{local: make([]sys.Iovec, 0, room), remote: make([]sys.Iovec, 0, room)}
				var local, remote []uint64
				for rounds := 0; w.left > 0; rounds++ {
					w.next(&s, limit)
					if s.n == 0 || s.n > limit || len(s.local) > room || len(s.remote) > room || rounds > 1000 {
						t.Fatalf("%s: slice of %d bytes, %d and %d entries", tt.name, s.n, len(s.local), len(s.remote))
					}
					local, remote = append(local, bytesOf(s.local)...), append(remote, bytesOf(s.remote)...)
				}
				wantLocal, wantRemote := wholeOp(&tt.op, 1<<20)
				equalAddrs(t, tt.name+" local", local, wantLocal)
				equalAddrs(t, tt.name+" remote", remote, wantRemote)
			}
		}
	}
}

func wholeOp(op *fabric.Op, base uint64) (local, remote []uint64) {
	l := []sys.Iovec{{Addr: op.Seg.Addr, Len: op.Seg.Len}}
	for _, s := range op.More {
		l = append(l, sys.Iovec{Addr: s.Addr, Len: s.Len})
	}
	r := []sys.Iovec{{Addr: base + op.RSeg.Addr, Len: op.RSeg.Len}}
	for _, s := range op.RMore {
		r = append(r, sys.Iovec{Addr: base + s.Addr, Len: s.Len})
	}
	return bytesOf(l), bytesOf(r)
}

func equalAddrs(t *testing.T, what string, got, want []uint64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d bytes, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: byte %d at %d, want %d", what, i, got[i], want[i])
		}
	}
}
