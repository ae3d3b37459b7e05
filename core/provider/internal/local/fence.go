// SPDX-License-Identifier: MIT

package local

import (
	"time"

	"mori/core/internal/sys"
)

// A Fence holds off a peer whose socket is gone, by two words in memory that both processes map, at
// these addresses. One side owns the fence, the other passes it: who copies counts itself in
// Copying and then looks at Closed (32 bits), who closes sets Closed and then waits for Copying (64
// bits) to be 0. One of the two sees the other.
type Fence struct{ Closed, Copying uint64 }

// Enter starts a copy in the owner's memory, or reports that the owner admits none any more. Leave
// must follow a true.
func (f Fence) Enter() bool {
	sys.Add64(f.Copying, 1)
	if sys.Load32(f.Closed) == 0 {
		return true
	}
	f.Leave()
	return false
}

// Leave ends what Enter began.
func (f Fence) Leave() { sys.Add64(f.Copying, ^uint64(0)) }

// Close refuses new copies; Empty then reports when the last one is over.
func (f Fence) Close()         { sys.Store32(f.Closed, 1) }
func (f Fence) IsClosed() bool { return sys.Load32(f.Closed) != 0 }
func (f Fence) Empty() bool    { return sys.Load64(f.Copying) == 0 }

// Await waits until the peer copies nothing any more, since it has ended or since no copy can begin
// after Close. It reports false when limit has passed first.
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
