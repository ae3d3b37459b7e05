// SPDX-License-Identifier: MIT

package serial

import (
	"runtime"
	"sync/atomic"
)

// Calls merges overlapping calls of one function. The first caller runs the function. Callers that
// come meanwhile return immediately, and the first caller runs the function once more for all of
// them. A call from within the function counts as one of those. The zero value is ready.
type Calls struct{ pending atomic.Int64 }

// Do runs f, unless another caller is running it, which then runs it again. All callers pass the
// same f.
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

// Settle waits until no call is running. The caller ensures that no new calls start.
func (c *Calls) Settle() {
	for c.pending.Load() != 0 {
		runtime.Gosched()
	}
}
