// SPDX-License-Identifier: MIT

package rdm

import (
	"sync/atomic"

	"mori/core/fabric"
)

// routes maps a peer's number to its conn, once ops have gone to the peer. An entry may be stale.
// The number may belong to another peer by now, which conn.peer shows, or the conn may have ended,
// which its carrier reports.
type routes struct {
	table atomic.Pointer[[]atomic.Pointer[conn]] // by number
}

// at returns the conn of a number, or nil.
func (r *routes) at(n fabric.AVAddr) *conn {
	if t := r.table.Load(); t != nil && n < fabric.AVAddr(len(*t)) {
		return (*t)[n].Load()
	}
	return nil
}

// set sets the conn of n, a number of an address vector. Calls must be serialized.
func (r *routes) set(n fabric.AVAddr, c *conn) {
	t := r.table.Load()
	if t == nil || n >= fabric.AVAddr(len(*t)) {
		grown := make([]atomic.Pointer[conn], max(8, 2*int(n)))
		if t != nil {
			for i := range *t {
				grown[i].Store((*t)[i].Load())
			}
		}
		t = &grown
		r.table.Store(t)
	}
	(*t)[n].Store(c)
}

// forget removes c. It must not run at the same time as set.
func (r *routes) forget(c *conn) {
	t := r.table.Load()
	if t == nil {
		return
	}
	for i := range *t {
		(*t)[i].CompareAndSwap(c, nil)
	}
}
