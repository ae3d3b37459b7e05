// SPDX-License-Identifier: MIT

package rdm

import (
	"sync/atomic"

	"mori/core/fabric"
)

// A routes is the way from a peer's number to its conn, as far as ops went there. What it says may
// be old: the number may be another peer's by now, which conn.peer shows, and the conn may have
// ended, which its carrier says.
type routes struct {
	table atomic.Pointer[[]atomic.Pointer[conn]] // by number
}

// at is the conn of a number, nil if none is known.
func (r *routes) at(n fabric.AVAddr) *conn {
	if t := r.table.Load(); t != nil && n < fabric.AVAddr(len(*t)) {
		return (*t)[n].Load()
	}
	return nil
}

// set makes c the conn of n, which an address vector gave out. One call at a time.
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

// forget takes c out. Not at the same time as set.
func (r *routes) forget(c *conn) {
	t := r.table.Load()
	if t == nil {
		return
	}
	for i := range *t {
		(*t)[i].CompareAndSwap(c, nil)
	}
}
