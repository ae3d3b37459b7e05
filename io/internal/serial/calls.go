// SPDX-License-Identifier: MIT

package serial

import (
	"runtime"
	"sync/atomic"
)

// Calls merges overlapping calls of one function. The first caller runs the function, and runs it
// once more for all callers that came meanwhile and returned at once. A call from within the
// function is one of those. The zero value is ready.
type Calls struct{ pending atomic.Int64 }

// Do runs f, or leaves that to the caller that runs it now. All callers pass the same f.
func (c *Calls) Do(f func()) {
	if c.pending.Add(1) > 1 {
		return
	}
	for {
		n := c.pending.Load()
		f()
		if c.pending.CompareAndSwap(n, 0) {
			return
		}
	}
}

// Settle returns when no call is running. The caller makes sure that new calls stop.
func (c *Calls) Settle() {
	for c.pending.Load() != 0 {
		runtime.Gosched()
	}
}
