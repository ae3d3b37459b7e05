// SPDX-License-Identifier: MIT

package socket

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/frame"
)

// Checksums of payload. The sender puts the crc32c of a payload into the header if its
// configuration or the peer's read asks for it. The receiver compares it with what arrived, part by
// part, while each is still in the cache. A write or reply that differs ends its operation with
// ErrCRC, without a completion for its remote data. A message that differs ends the connection,
// since others are behind it.
//
// Memory that its owner changes while it is sent may differ, too, and so may memory that two large
// operations write at once.

// checksumOf adds n bytes at addr to a sum. Memory that cannot be read is EFAULT.
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

// checksumPart is how much is summed at a time, from a copy: Go code does not touch memory that
// others own (vm.CopySelf). It fits a processor's own cache.
const checksumPart = 64 << 10

var checksumBuffers = sync.Pool{New: func() any { return new([checksumPart]byte) }}

// summing reports whether payload is summed as it arrives.
func (in *reader) summing() bool { return in.H.Flags&frame.FlagChecksum != 0 && in.zstd == nil }

// arrived takes the next n bytes of payload, which are at the head of dst, into the sum.
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

// differs reports whether the payload that arrived is not what was sent.
func (in *reader) differs() bool {
	return in.H.Flags&frame.FlagChecksum != 0 && in.sum != in.H.Checksum
}

// altered is the error of a frame whose contents were changed on the way.
func altered(peer fabric.Addr, h *frame.Header) error {
	return fmt.Errorf("%v frame of %s was altered in transit: %w", h.Kind, peer, fabric.ErrCRC)
}
