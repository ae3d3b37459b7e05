// SPDX-License-Identifier: MIT

package socket

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/frame"
)

// Payload checksums. The sender puts the crc32c of a payload into the header if its configuration
// or the peer's read asks for it. The receiver checksums the payload in parts, while each part is
// still in the cache. If a write or reply differs, its operation ends with ErrCRC and the remote
// data is not delivered. If a message differs, the connection ends, because other messages follow
// it.
//
// Checksums also differ if the owner changes the memory while it is being sent, or if two large
// operations write to the same memory at once.

// checksumOf adds n bytes at addr to a checksum. It returns EFAULT if the memory cannot be read.
func checksumOf(sum uint32, addr, n uint64) (uint32, error) {
	b := checksumBuffers.Get().(*[checksumPart]byte)
	defer checksumBuffers.Put(b)
	for n > 0 {
		part := b[:min(n, checksumPart)]
		if err := vm.Load(part, addr); err != nil {
			return sum, err
		}
		sum = frame.Checksum(sum, part)
		addr, n = addr+uint64(len(part)), n-uint64(len(part))
	}
	return sum, nil
}

// checksumPart is how many bytes are copied and checksummed at a time. Go code does not access
// memory owned by others directly, hence the copy (vm.CopySelf). A part fits a core's own cache.
const checksumPart = 64 << 10

var checksumBuffers = sync.Pool{New: func() any { return new([checksumPart]byte) }}

// summing reports whether payload is checksummed as it arrives.
func (in *reader) summing() bool { return in.H.Flags&frame.FlagChecksum != 0 && in.zstd == nil }

// arrived adds the next n bytes of payload, at the head of Dst, to the checksum.
func (in *reader) arrived(n uint64) (err error) {
	if !in.summing() {
		return nil
	}
	for _, v := range in.Dst {
		k := min(n, v.Len)
		if in.sum, err = checksumOf(in.sum, v.Addr, k); err != nil {
			return err
		}
		if n -= k; n == 0 {
			return nil
		}
	}
	return nil
}

// differs reports whether the received payload does not match its checksum.
func (in *reader) differs() bool {
	return in.H.Flags&frame.FlagChecksum != 0 && in.sum != in.H.Checksum
}

// altered returns the error for a frame whose contents changed in transit.
func altered(peer fabric.Addr, h *frame.Header) error {
	return fmt.Errorf("%v frame of %s was altered in transit: %w", h.Kind, peer, fabric.ErrCRC)
}
