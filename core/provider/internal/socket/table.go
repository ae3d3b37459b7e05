// SPDX-License-Identifier: MIT

package socket

import (
	"fmt"

	"mori/core/provider/internal/frame"
)

// openTable prepares to read the table of the frame whose header has arrived.
func (in *reader) openTable() {
	in.left, in.total, in.check, in.sum = 0, 0, 0, 0
	if in.Segs = in.Segs[:0]; cap(in.Segs) > keepEntries {
		in.Segs = nil
	}
	if in.H.HasTable() {
		in.left = int(in.H.Count)
	}
}

// readTable reads the segments that follow the header, if any.
func (in *reader) readTable() error {
	h := &in.H
	for in.left > 0 {
		if err := in.need(frame.SegmentLen); err != nil {
			return err
		}
		n := min(in.left, (in.w-in.r)/frame.SegmentLen)
		var err error
		if in.Segs, err = frame.AppendSegments(in.Segs, in.buf[in.r:in.r+n*frame.SegmentLen], &in.total, h.Length); err != nil {
			return fmt.Errorf("%v frame of %s: %w", h.Kind, in.s.env.Peer, err)
		}
		in.check = frame.Checksum(in.check, in.buf[in.r:in.r+n*frame.SegmentLen])
		in.r += n * frame.SegmentLen
		in.left -= n
	}
	if h.HasTable() && in.check != h.TableChecksum {
		return altered(in.s.env.Peer, h)
	}
	if h.HasTable() && in.total != h.Length {
		return frame.ProtocolErr("%v frame of %s: %d bytes for segments of %d", h.Kind, in.s.env.Peer, h.Length, in.total)
	}
	return nil
}
