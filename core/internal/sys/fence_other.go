// SPDX-License-Identifier: MIT

//go:build !arm64

package sys

import "sync/atomic"

// Fence makes earlier stores visible to all cores before later loads and stores take effect. Go's
// atomic store does that. On amd64 it is an XCHG, which takes a third of the time of MFENCE.
func Fence() {
	var word uint32
	atomic.StoreUint32(&word, 1)
}
