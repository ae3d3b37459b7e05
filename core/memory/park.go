// SPDX-License-Identifier: MIT

package memory

import (
	"sync/atomic"
	"time"

	"mori/core/internal/sys/futex"
	"mori/core/internal/sys/pages"
)

// A ParkWord is a value that threads of this process poll, and park on: C's with
// FUTEX_WAIT_PRIVATE, Go's by Park. A thread adds itself to Waiters before it looks at Value for
// the last time, and parks only if Value has not changed; a writer stores Value first and then
// calls Wake. Both are sequentially consistent, so no wake-up is lost. The zero value is ready.
type ParkWord struct {
	Value   atomic.Uint32
	Waiters atomic.Uint32 // directly behind Value: C knows the layout
}

// Wake wakes all parked threads. It costs a system call only if there is one.
func (w *ParkWord) Wake() {
	if w.Waiters.Load() != 0 {
		futex.WakeWord(&w.Value)
	}
}

// Park parks the calling thread, not only the goroutine, while Value is seen, until Wake or for a
// time of at least some 55 µs, what Linux takes for a nap: where a Go timer takes up to a
// millisecond. seen was loaded before the caller looked for the last time whether there is work.
func (w *ParkWord) Park(seen uint32, most time.Duration) {
	w.Waiters.Add(1)
	_ = futex.Wait(futex.WordAddr(&w.Value), seen, most, false) // any way that it ends is time to look
	w.Waiters.Add(^uint32(0))
}

// Addr is the address of Value for C code; w must be kept alive.
func (w *ParkWord) Addr() uint64 { return futex.WordAddr(&w.Value) }

// NUMANode is the NUMA node of the page at addr, -1 if unknown.
func NUMANode(addr uint64) int { return pages.NUMANode(addr) }
