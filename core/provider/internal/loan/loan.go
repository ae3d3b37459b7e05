// SPDX-License-Identifier: MIT

package loan

import (
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/local"
)

// A Loan is the right to reach one region of the peer.
//
//	asked ──lend──▶ granted ──revoke──▶ returned
//	   └───refuse──▶ gone
//
// A share begins granted.
type Loan[P any] struct {
	Key fabric.RegionKey // of what was asked for

	// Set before Answered closes.
	Answered chan struct{}
	Place    P
	Refused  fabric.Errno // 0: granted

	Use local.Gate // accesses under it

	ready  atomic.Bool // Answered is closed, or about to be: to look at it takes less
	ticket uint64
}

// Ticket names the loan to the peer.
func (l *Loan[P]) Ticket() uint64 { return l.ticket }

// Ready reports whether the peer has answered.
func (l *Loan[P]) Ready() bool { return l.ready.Load() }

func (l *Loan[P]) answer() {
	l.ready.Store(true)
	close(l.Answered)
}

// Granted reports whether the peer has said yes.
func (l *Loan[P]) Granted() bool { return l.Ready() && l.Refused == 0 }

// Await is Ready; with wait, it waits for that until stopped closes.
func (l *Loan[P]) Await(wait bool, stopped <-chan struct{}) bool {
	if l.Ready() || !wait {
		return l.Ready()
	}
	select {
	case <-l.Answered:
		return true
	case <-stopped:
		return false
	}
}

// Check holds a read or write against a region of size bytes that was lent with these rights: rights, then bounds.
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
