// SPDX-License-Identifier: MIT

package host

import (
	"fmt"
	"math/bits"

	"mori/core/memory"
	"mori/shmem"
)

// leastStaging avoids one allocation after another during the first calls, with few tokens.
const leastStaging = 1 << 20

// staging is memory for rows from or to ranks whose memory is not mapped here. It is a registered
// buffer of the World, because registering memory with a NIC takes as long as sending many rows.
type staging struct {
	world *shmem.World
	buf   []byte
}

// get returns n bytes. The next get may return the same bytes.
func (s *staging) get(n uint64) ([]byte, error) {
	if uint64(len(s.buf)) < n {
		if err := s.drop(); err != nil {
			return nil, err
		}
		size := max(leastStaging, uint64(1)<<bits.Len64(n-1))
		at, err := s.world.AllocBuffer(size)
		if err != nil {
			return nil, fmt.Errorf("stage rows of %d bytes: %w", n, err)
		}
		s.buf = memory.Bytes(at, size)
	}
	return s.buf[:n], nil
}

func (s *staging) drop() error {
	if s.buf == nil {
		return nil
	}
	at := memory.AddrOf(s.buf)
	s.buf = nil
	return s.world.FreeBuffer(at)
}
