// SPDX-License-Identifier: MIT

package memory

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"mori/core/internal/sys"
	"mori/core/internal/sys/memfd"
)

// A Segment is memory that other processes of this host can map: a memfd. It starts zeroed, the
// kernel allocates pages on first use, and it may grow in place up to its limit. The memory lives
// as long as any process maps it.
type Segment struct {
	fd    int
	whole []byte // the mapping to unmap: bytes, and the padding for their alignment
	bytes []byte // limit bytes; those beyond size must not be accessed
	size  atomic.Uint64
}

// NewSegment creates a segment of size bytes that may grow to limit. It is aligned to the largest
// power of two up to limit, so that alignment in the segment is alignment in memory.
func NewSegment(name string, size, limit uint64) (*Segment, error) {
	if size > limit || limit == 0 || limit > 1<<46 {
		return nil, fmt.Errorf("make segment %s of %d bytes, at most %d: invalid size", name, size, limit)
	}
	fd, err := memfd.NewGrowing(name, size)
	if err != nil {
		return nil, err
	}
	s, err := mapSegment(fd, limit, 1<<(bits.Len64(limit)-1))
	if err != nil {
		return nil, fmt.Errorf("make segment %s: %w", name, err)
	}
	s.size.Store(size)
	return s, nil
}

// mapSegment takes ownership of fd.
func mapSegment(fd int, limit, align uint64) (*Segment, error) {
	whole, b, err := memfd.MapAligned(fd, limit, align)
	if err != nil {
		_ = sys.CloseFD(fd)
		return nil, err
	}
	return &Segment{fd: fd, whole: whole, bytes: b}, nil
}

// Addr returns the segment's address in this process.
func (s *Segment) Addr() uint64 { return sys.AddrOf(s.bytes) }

// Size returns how many bytes may be used, Limit the maximum of Size.
func (s *Segment) Size() uint64  { return s.size.Load() }
func (s *Segment) Limit() uint64 { return uint64(len(s.bytes)) }

// Grow enlarges the segment. Processes that have mapped it call Seen to use the new part.
func (s *Segment) Grow(size uint64) error {
	if size < s.Size() || size > s.Limit() {
		return fmt.Errorf("grow a segment from %d to %d bytes: at most %d", s.Size(), size, s.Limit())
	}
	if err := memfd.Truncate(s.fd, size); err != nil {
		return fmt.Errorf("grow a segment: %w", err)
	}
	s.size.Store(size)
	return nil
}

// Seen updates the size after another process has called Grow.
func (s *Segment) Seen() error {
	size, err := memfd.Size(s.fd)
	if err != nil {
		return err
	}
	s.size.Store(min(size, s.Limit()))
	return nil
}

// Close unmaps the segment here. No code may access it any more.
func (s *Segment) Close() error {
	if s.bytes == nil {
		return nil
	}
	err := sys.Free(s.whole)
	s.whole, s.bytes = nil, nil
	if e := sys.CloseFD(s.fd); err == nil {
		err = e
	}
	return err
}
