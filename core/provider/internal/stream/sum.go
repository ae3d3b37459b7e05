// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// Checksums of payload. A sender with Config.Sums, or whose peer asked with a read, puts the crc32c of a frame's payload into its header.
// A receiver compares it with what arrived: piece by piece, as each is in place and still in the cache. A write or a reply that differs
// ends its op with ErrCRC, and nobody is told of remote data; a message that differs ends the connection, since the ones behind it are on
// their way.
//
// Memory that its owner changes while it is sent may differ, too, and so may memory that two large ops write at once.

// sumOf adds n bytes at addr to a sum. Memory that cannot be read is EFAULT.
func sumOf(sum uint32, addr, n uint64) (uint32, error) {
	b := sumBuffers.Get().(*[sumPart]byte)
	defer sumBuffers.Put(b)
	for n > 0 {
		part := b[:min(n, sumPart)]
		if err := sys.Load(part, addr); err != nil {
			return sum, err
		}
		sum = frame.Checksum(sum, part)
		addr, n = addr+uint64(len(part)), n-uint64(len(part))
	}
	return sum, nil
}

// sumPart is how much is summed at a time, from a copy: Go code does not touch memory that others own (sys.CopySelf). It fits a processor's own cache.
const sumPart = 64 << 10

var sumBuffers = sync.Pool{New: func() any { return new([sumPart]byte) }}

// summing reports whether payload is summed as it arrives.
func (in *reader) summing() bool { return in.h.Flags&frame.FlagChecksum != 0 && in.pack == nil }

// arrived takes the next n bytes of payload, which are at the head of dst, into the sum.
func (in *reader) arrived(n uint64) (err error) {
	if !in.summing() {
		return nil
	}
	for _, v := range in.dst {
		k := min(n, v.Len)
		if in.sum, err = sumOf(in.sum, v.Addr, k); err != nil {
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
	return in.h.Flags&frame.FlagChecksum != 0 && in.sum != in.h.Checksum
}

// altered is the error of a frame whose contents were changed on the way.
func (l *link) altered(h *frame.Header) error {
	return fmt.Errorf("%v frame of %s was altered on its way: %w", h.Kind, l.ep.peer, fabric.ErrCRC)
}

// written is the memory of a write whose claim holds.
func (l *link) written() []sys.Iovec {
	in := &l.in
	iov := in.scratch(len(in.segs))
	for _, s := range in.segs {
		if addr, err := in.mr.Range(s.Addr, s.Len); err == nil && s.Len > 0 {
			iov = append(iov, sys.Iovec{Addr: addr, Len: s.Len})
		}
	}
	return iov
}

// replied is the memory of an op that a reply of n bytes has filled.
func (l *link) replied(s *slot, n uint64) []sys.Iovec {
	iov := l.in.scratch(1 + len(s.op.More))
	if s.op.Kind != fabric.OpRead {
		return append(iov, sys.Iovec{Addr: s.op.Atomic.Result.Addr, Len: n})
	}
	return appendLocal(iov, &s.op, n)
}
