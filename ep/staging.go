// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"math/bits"

	"mori/core/memory"
)

// leastStaging keeps the first few calls, with few tokens, from making one after the other.
const leastStaging = 1 << 20

// stage gives n bytes for rows from or to ranks whose memory is not mapped here: memory that NICs
// know, since to show them a new one takes as long as many rows. The next call may give the same
// again.
func (o *Op) stage(n uint64) ([]byte, error) {
	if uint64(len(o.staging)) < n {
		if err := o.dropStaging(); err != nil {
			return nil, err
		}
		size := max(leastStaging, uint64(1)<<bits.Len64(n-1))
		at, err := o.world.AllocBuffer(size)
		if err != nil {
			return nil, fmt.Errorf("stage rows of %d bytes: %w", n, err)
		}
		o.staging = memory.Bytes(at, size)
	}
	return o.staging[:n], nil
}

func (o *Op) dropStaging() error {
	if o.staging == nil {
		return nil
	}
	at := memory.AddrOf(o.staging)
	o.staging = nil
	return o.world.FreeBuffer(at)
}
