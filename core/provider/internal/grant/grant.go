// SPDX-License-Identifier: MIT

package grant

import (
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/local"
)

// A Grant is the right to access one region of the peer.
//
//	requested ──grant──▶ granted ──revoke──▶ returned
//	    └─────refuse──▶ gone
//
// A share starts in the granted state.
type Grant[P any] struct {
	Key fabric.RegionKey // of the requested region

	// Set before Answered is closed.
	Answered chan struct{}
	Region   P
	Refused  fabric.Errno // 0: granted

	Use local.Gate // counts accesses

	ready  atomic.Bool // Answered is closed or about to be; cheaper to check
	ticket uint64
}

// Ticket identifies the grant to the peer.
func (g *Grant[P]) Ticket() uint64 { return g.ticket }

// Ready reports whether the peer has answered.
func (g *Grant[P]) Ready() bool { return g.ready.Load() }

func (g *Grant[P]) answer() {
	g.ready.Store(true)
	close(g.Answered)
}

// Granted reports whether the peer has answered with a grant.
func (g *Grant[P]) Granted() bool { return g.Ready() && g.Refused == 0 }

// Await is like Ready. If wait is set, it waits for the answer until stopped is closed.
func (g *Grant[P]) Await(wait bool, stopped <-chan struct{}) bool {
	if g.Ready() || !wait {
		return g.Ready()
	}
	select {
	case <-g.Answered:
		return true
	case <-stopped:
		return false
	}
}

// Check returns an error unless the grant has the rights for op and op is inside a region of size
// bytes. It checks the rights first, then the bounds.
func Check(op *fabric.Op, id uint64, access fabric.Access, size uint64) error {
	if want := op.Access(); access&want != want {
		return local.OpFault(fabric.ErrAccess, "region %d", id)
	}
	if !inside(&op.RSeg, size) {
		return outside(&op.RSeg, id, size)
	}
	for i := range op.RMore {
		if r := &op.RMore[i]; !inside(r, size) {
			return outside(r, id, size)
		}
	}
	return nil
}

func inside(r *fabric.RSeg, size uint64) bool { return r.Addr <= size && r.Len <= size-r.Addr }

func outside(r *fabric.RSeg, id, size uint64) error {
	return local.OpFault(fabric.ErrRange, "%d bytes at %#x of region %d, which has %d", r.Len, r.Addr, id, size)
}
