// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"

	"mori/core/provider/internal/frame"
)

// openTable readies the table of the frame whose header came.
func (l *link) openTable() {
	in := &l.in
	in.left, in.total, in.check, in.sum = 0, 0, 0, 0
	if in.segs = in.segs[:0]; cap(in.segs) > keepEntries {
		in.segs = nil
	}
	if in.h.HasTable() {
		in.left = int(in.h.Count)
	}
}

// readTable reads the segments that follow, if any do.
func (l *link) readTable() error {
	in := &l.in
	h := &in.h
	for in.left > 0 {
		if err := l.need(frame.SegmentLen); err != nil {
			return err
		}
		n := min(in.left, (in.w-in.r)/frame.SegmentLen)
		var err error
		if in.segs, err = frame.AppendSegments(in.segs, in.buf[in.r:in.r+n*frame.SegmentLen], &in.total, h.Length); err != nil {
			return fmt.Errorf("%v frame of %s: %w", h.Kind, l.ep.peer, err)
		}
		in.check = frame.Checksum(in.check, in.buf[in.r:in.r+n*frame.SegmentLen])
		in.r += n * frame.SegmentLen
		in.left -= n
	}
	if h.HasTable() && in.check != h.TableChecksum {
		return l.altered(h)
	}
	if h.HasTable() && in.total != h.Length {
		return frame.ProtocolErr("%v frame of %s: %d bytes for segments of %d", h.Kind, l.ep.peer, h.Length, in.total)
	}
	return nil
}
