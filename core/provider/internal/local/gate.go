// SPDX-License-Identifier: MIT

package local

import (
	"sync"
	"sync/atomic"
)

// A Gate admits users until it is shut, and reports once when the last one has left. The zero value
// is open.
type Gate struct {
	state atomic.Int64 // users inside, plus gateShut
	once  sync.Once
	empty chan struct{} // made by Shut before gateShut is set; closed when the last user has left
}

const gateShut = 1 << 40

// Enter reports whether the gate is open. If so, the caller must call Leave.
func (g *Gate) Enter() bool {
	if g.state.Add(1) < gateShut {
		return true
	}
	g.Leave()
	return false
}

// Leave undoes Enter.
func (g *Gate) Leave() {
	if g.state.Add(-1) == gateShut {
		g.report()
	}
}

// report may be called more than once, because a late Enter raises the count again for an instant.
func (g *Gate) report() { g.once.Do(func() { close(g.empty) }) }

// Shut closes the gate without waiting. The returned channel is closed when the last user has left.
// Call Shut once.
func (g *Gate) Shut() <-chan struct{} {
	g.empty = make(chan struct{})
	if g.state.Add(gateShut) == gateShut {
		g.report()
	}
	return g.empty
}
