// SPDX-License-Identifier: MIT

package shm

import (
	"sync"
	"sync/atomic"
)

// A gate lets users in until it shuts, and tells once when the last one has left. The zero value is open.
type gate struct {
	state atomic.Int64 // users inside, plus gateShut
	once  sync.Once
	empty chan struct{} // made by shut before gateShut is set, closed when nobody is inside
}

const gateShut = 1 << 40

// enter reports whether the gate is open; if so, leave must follow.
func (g *gate) enter() bool {
	if g.state.Add(1) < gateShut {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.state.Add(-1) == gateShut {
		g.tell()
	}
}

// tell may be called more than once: a late enter raises the count again for an instant.
func (g *gate) tell() { g.once.Do(func() { close(g.empty) }) }

// shut closes the gate without waiting; the channel is closed when nobody is inside any more. One caller only.
func (g *gate) shut() <-chan struct{} {
	g.empty = make(chan struct{})
	if g.state.Add(gateShut) == gateShut {
		g.tell()
	}
	return g.empty
}
