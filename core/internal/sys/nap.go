// SPDX-License-Identifier: MIT

package sys

import (
	"sync/atomic"
	"time"
)

// napWord is never changed.
var napWord atomic.Uint32

// Nap parks the calling thread for d and some 60 us more. time.Sleep takes up to 1.5 ms where d is
// less than one: the runtime waits at its poller in whole milliseconds. A nap holds a thread, so it
// is for waits that end soon.
func Nap(d time.Duration) { _ = FutexWait(WordAddr(&napWord), 0, d, false) }
