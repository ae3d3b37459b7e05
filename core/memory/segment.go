// SPDX-License-Identifier: MIT

package memory

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"mori/core/internal/sys"
	"mori/core/internal/sys/memfd"
)

// A Segment is memory that other processes of this host can map, too: a memfd. It starts as zeros,
// takes pages as they are touched, and may grow up to the limit that it was made with, without
// moving. The memory lives as long as somebody maps it.
type Segment struct {
	fd    int
	whole []byte // what Close unmaps: bytes and, for the sake of their alignment, what is around them
	bytes []byte // limit bytes; those behind size must not be touched
	size  atomic.Uint64
}

// NewSegment makes a segment of size bytes that may grow to limit. It begins at a multiple of the
// largest power of two that is not above limit, so that what is aligned in the segment is aligned
// in memory.
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

// mapSegment takes fd over.
func mapSegment(fd int, limit, align uint64) (*Segment, error) {
	whole, b, err := memfd.MapAligned(fd, limit, align)
	if err != nil {
		_ = sys.CloseFD(fd)
		return nil, err
	}
	return &Segment{fd: fd, whole: whole, bytes: b}, nil
}

// Addr is where the segment begins in this process.
func (s *Segment) Addr() uint64 { return sys.AddrOf(s.bytes) }

// Size is how many bytes may be used, Limit how many there can be.
func (s *Segment) Size() uint64  { return s.size.Load() }
func (s *Segment) Limit() uint64 { return uint64(len(s.bytes)) }

// Grow makes the segment larger. Who has mapped it calls Seen to use the rest.
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

// Seen looks how large the segment is now.
func (s *Segment) Seen() error {
	size, err := memfd.Size(s.fd)
	if err != nil {
		return err
	}
	s.size.Store(min(size, s.Limit()))
	return nil
}

// Close unmaps the segment here. Nobody may touch it any more.
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
