// SPDX-License-Identifier: MIT

package memory

import (
	"sync/atomic"
	"time"

	"mori/core/internal/sys/futex"
	"mori/core/internal/sys/pages"
)

// A ParkWord is a value that threads of this process poll and park on: C code with
// FUTEX_WAIT_PRIVATE, Go by Park. A thread adds itself to Waiters before its last check of Value,
// and parks only if Value has not changed. A writer stores Value first and then calls Wake. Both
// are sequentially consistent, so no wakeup is lost. The zero value is ready.
type ParkWord struct {
	Value   atomic.Uint32
	Waiters atomic.Uint32 // directly after Value: C relies on the layout
}

// Wake wakes all parked threads. It makes a system call only if one is parked.
func (w *ParkWord) Wake() {
	if w.Waiters.Load() != 0 {
		futex.WakeWord(&w.Value)
	}
}

// Park parks the calling thread, not only the goroutine, while Value is seen, until Wake or for a
// bounded time. Linux naps at least about 55 µs, where a Go timer takes up to a millisecond. Load
// seen before the last check for work.
func (w *ParkWord) Park(seen uint32, most time.Duration) {
	w.Waiters.Add(1)
	_ = futex.Wait(futex.WordAddr(&w.Value), seen, most, false) // check again however it ended
	w.Waiters.Add(^uint32(0))
}

// Addr returns the address of Value for C code. Keep w alive.
func (w *ParkWord) Addr() uint64 { return futex.WordAddr(&w.Value) }

// NUMANode returns the NUMA node of the page at addr, -1 if unknown.
func NUMANode(addr uint64) int { return pages.NUMANode(addr) }
