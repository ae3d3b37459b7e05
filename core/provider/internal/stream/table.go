// SPDX-License-Identifier: MIT

package stream

import "fmt"

// openTable readies the table of the frame whose header came.
func (l *link) openTable() {
	in := &l.in
	in.left, in.total, in.check, in.sum = 0, 0, 0, 0
	if in.segs = in.segs[:0]; cap(in.segs) > keepEntries {
		in.segs = nil
	}
	if tabled(&in.h) {
		in.left = int(in.h.count)
	}
}

// tabled reports whether a table follows the header.
func tabled(h *header) bool {
	return h.kind == kindWrite && h.flags&flagNotice == 0 || h.kind == kindRead
}

// readTable reads the segments that follow, if any do.
func (l *link) readTable() error {
	in := &l.in
	h := &in.h
	for in.left > 0 {
		if err := l.need(segmentLen); err != nil {
			return err
		}
		n := min(in.left, (in.w-in.r)/segmentLen)
		var err error
		if in.segs, err = appendSegments(in.segs, in.buf[in.r:in.r+n*segmentLen], &in.total, h.length); err != nil {
			return fmt.Errorf("%v frame of %s: %w", h.kind, l.ep.peer, err)
		}
		in.check = tableSum(in.check, in.buf[in.r:in.r+n*segmentLen])
		in.r += n * segmentLen
		in.left -= n
	}
	if tabled(h) && in.check != h.table {
		return l.altered(h)
	}
	if tabled(h) && in.total != h.length {
		return protocolErr("%v frame of %s: %d bytes for segments of %d", h.kind, l.ep.peer, h.length, in.total)
	}
	return nil
}
