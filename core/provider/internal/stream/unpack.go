// SPDX-License-Identifier: MIT

package stream

import (
	"encoding/binary"

	"mori/core/internal/sys"
)

// beginPacked makes the payload, whose destination is known, arrive in a buffer of its own if it is packed.
func (l *link) beginPacked(h *header) {
	if h.flags&flagZstd == 0 {
		return
	}
	in := &l.in
	b := packPool.Get().(*packBuffers)
	b.packed = sized(b.packed, int(h.packed))
	in.pack, in.own, in.want = b, true, uint64(h.packed)
	in.dst = append(in.scratch(1), sys.Iovec{Addr: sys.AddrOf(b.packed), Len: in.want})
}

// unpack moves a payload that came packed to its destination, if it is what its header says. Else no byte is written.
func (l *link) unpack(h *header, to []sys.Iovec) error {
	b := l.in.pack
	l.in.pack = nil
	defer b.free()
	if !b.unpack(int(h.length)) {
		return protocolErr("%v frame of %s: %d bytes that do not unpack to %d", h.kind, l.ep.peer, h.packed, h.length)
	}
	if h.flags&flagSum != 0 {
		if l.in.sum = tableSum(0, b.raw); l.in.differs() {
			return nil // and the op ends with that
		}
	}
	if _, err := sys.CopySelf(to, []sys.Iovec{{Addr: sys.AddrOf(b.raw), Len: h.length}}); err != nil {
		l.in.gone = true
	}
	return nil
}

// unpack makes n bytes of the packed ones. The bytes come from outside: any input is answered.
func (b *packBuffers) unpack(n int) bool {
	if !isFrame(b.packed, uint64(n)) {
		return false
	}
	b.raw = sized(b.raw, n)
	got, err := b.codec.DecompressInto(b.raw, b.packed)
	return err == nil && got == n
}

// isFrame reports whether b is one zstd frame (RFC 8878, section 3.1.1) that claims to hold n bytes, without dictionary and checksum, and nothing
// behind it. The library itself would go on with what follows, and take formats of long ago.
func isFrame(b []byte, n uint64) bool {
	const (
		magic     = 0xfd2fb528
		headerMin = 5
	)
	if len(b) < headerMin || binary.LittleEndian.Uint32(b) != magic {
		return false
	}
	descriptor := b[4]
	b = b[headerMin:]
	single := descriptor >> 5 & 1
	window := 1 - int(single)
	sizeLen := [4]int{int(single), 2, 4, 8}[descriptor>>6]
	if descriptor&0xf != 0 || sizeLen == 0 || len(b) < window+sizeLen {
		return false
	}
	b = b[window:]
	var size [8]byte
	copy(size[:], b[:sizeLen])
	claim := binary.LittleEndian.Uint64(size[:])
	if sizeLen == 2 {
		claim += 256
	}
	return claim == n && isBlocks(b[sizeLen:])
}

// isBlocks reports whether b is the blocks of one frame, to the last.
func isBlocks(b []byte) bool {
	const (
		headerLen = 3
		rle       = 1
	)
	for len(b) >= headerLen {
		h := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		n := int(h >> 3)
		if h>>1&3 == rle {
			n = 1
		}
		b = b[headerLen:]
		if n > len(b) {
			return false
		}
		b = b[n:]
		if h&1 != 0 {
			return len(b) == 0
		}
	}
	return false
}
