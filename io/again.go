// SPDX-License-Identifier: MIT

package io

import (
	"runtime"
	"sync/atomic"
)

// An again merges overlapping calls of one function: the first caller runs it, and runs it once more for everybody who
// called meanwhile and was sent away. A call from within the function is one of those. The zero value is ready.
type again struct{ asked atomic.Int64 }

func (a *again) do(f func()) {
	if a.asked.Add(1) > 1 {
		return
	}
	for {
		n := a.asked.Load()
		f()
		if a.asked.CompareAndSwap(n, 0) {
			return
		}
	}
}

// settle returns when no call is running. The caller sees to it that no further ones come for ever.
func (a *again) settle() {
	for a.asked.Load() != 0 {
		runtime.Gosched()
	}
}
