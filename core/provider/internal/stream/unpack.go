// SPDX-License-Identifier: MIT

package stream

import (
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// beginPacked makes the payload, whose destination is known, arrive in a buffer of its own if it is packed.
func (l *link) beginPacked(h *frame.Header) {
	if h.Flags&frame.FlagCompressed == 0 {
		return
	}
	in := &l.in
	b := frame.TakeZstd()
	b.SizeCompressed(int(h.Compressed))
	in.pack, in.own, in.want = b, true, uint64(h.Compressed)
	in.dst = append(in.scratch(1), sys.Iovec{Addr: sys.AddrOf(b.Compressed), Len: in.want})
}

// unpack moves a payload that came packed to its destination, if it is what its header says. Else no byte is written.
func (l *link) unpack(h *frame.Header, to []sys.Iovec) error {
	b := l.in.pack
	l.in.pack = nil
	defer b.Free()
	if !b.Decompress(int(h.Length)) {
		return frame.ProtocolErr("%v frame of %s: %d bytes that do not unpack to %d", h.Kind, l.ep.peer, h.Compressed, h.Length)
	}
	if h.Flags&frame.FlagChecksum != 0 {
		if l.in.sum = frame.Checksum(0, b.Plain); l.in.differs() {
			return nil // and the op ends with that
		}
	}
	if _, err := sys.CopySelf(to, []sys.Iovec{{Addr: sys.AddrOf(b.Plain), Len: h.Length}}); err != nil {
		l.in.gone = true
	}
	return nil
}
