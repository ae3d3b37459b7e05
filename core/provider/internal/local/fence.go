// SPDX-License-Identifier: MIT

package local

import (
	"time"

	"mori/core/internal/sys"
)

// A Fence blocks copies by a peer whose socket is closed. It uses two words in memory that both
// processes map, at these addresses. One side owns the fence and the other side passes it. To copy,
// a process increments Copying and then checks Closed (32 bits). To close, the owner sets Closed
// and then waits until Copying (64 bits) is 0. At least one of the two sees the other's change.
type Fence struct{ Closed, Copying uint64 }

// Enter starts a copy in the owner's memory. It returns false if the owner has closed the fence.
// After true, the caller must call Leave.
func (f Fence) Enter() bool {
	sys.Add64(f.Copying, 1)
	if sys.Load32(f.Closed) == 0 {
		return true
	}
	f.Leave()
	return false
}

// Leave ends a copy that Enter started.
func (f Fence) Leave() { sys.Add64(f.Copying, ^uint64(0)) }

// Close refuses new copies. Empty then reports whether the last one has ended.
func (f Fence) Close()         { sys.Store32(f.Closed, 1) }
func (f Fence) IsClosed() bool { return sys.Load32(f.Closed) != 0 }
func (f Fence) Empty() bool    { return sys.Load64(f.Copying) == 0 }

// Await waits until the peer copies nothing any more: its process has ended, or its last copy
// before Close has. It returns false if limit passes first.
func (f Fence) Await(peer *Peer, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for nap := 20 * time.Microsecond; !f.Empty(); nap = min(2*nap, 10*time.Millisecond) {
		if peer.Dead() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(nap)
	}
	return true
}
