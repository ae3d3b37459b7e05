// SPDX-License-Identifier: MIT

package sys

import "sync/atomic"

// Fence makes stores before it visible to all cores before loads and stores after it are done. An exchange does that here, and
// in a third of the time of MFENCE.
func Fence() {
	var word uint32
	atomic.StoreUint32(&word, 1)
}
