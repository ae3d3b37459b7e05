// SPDX-License-Identifier: MIT

package memory

import (
	"sync/atomic"

	"mori/core/internal/sys"
)

// A ParkWord is a value that C threads of this process poll, and park on with FUTEX_WAIT_PRIVATE. A thread adds
// itself to Waiters before it looks at Value for the last time, and parks only if Value has not changed;
// a writer stores Value first and then calls Wake. Both are sequentially consistent, so no wake-up is lost.
// The zero value is ready.
type ParkWord struct {
	Value   atomic.Uint32
	Waiters atomic.Uint32 // directly behind Value: C knows the layout
}

// Wake wakes all parked threads. It costs a system call only if there is one.
func (w *ParkWord) Wake() {
	if w.Waiters.Load() != 0 {
		sys.WakeWord(&w.Value)
	}
}

// Addr is the address of Value for C code; w must be kept alive.
func (w *ParkWord) Addr() uint64 { return sys.WordAddr(&w.Value) }

// NUMANode is the NUMA node of the page at addr, -1 if unknown.
func NUMANode(addr uint64) int { return sys.NUMANodeOf(addr) }
