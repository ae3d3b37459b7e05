// SPDX-License-Identifier: MIT

package socket

import (
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/frame"
)

func (in *reader) receiveCompressed() {
	h := &in.H
	if h.Flags&frame.FlagCompressed == 0 {
		return
	}
	b := frame.TakeZstd()
	b.SizeCompressed(int(h.Compressed))
	in.zstd, in.Own, in.Want = b, true, uint64(h.Compressed)
	in.Dst = append(in.scratch(1), sys.Iovec{Addr: sys.AddrOf(b.Compressed), Len: in.Want})
}

func (in *reader) decompress(to []sys.Iovec) error {
	h := &in.H
	b := in.zstd
	in.zstd = nil
	defer b.Free()
	if !b.Decompress(int(h.Length)) {
		return frame.ProtocolErr("%v frame of %s: %d bytes do not decompress to %d", h.Kind, in.s.env.Peer, h.Compressed, h.Length)
	}
	if h.Flags&frame.FlagChecksum != 0 {
		if in.sum = frame.Checksum(0, b.Plain); in.differs() {
			return nil // the op ends with that error
		}
	}
	if _, err := vm.CopySelf(to, []sys.Iovec{{Addr: sys.AddrOf(b.Plain), Len: h.Length}}); err != nil {
		in.Gone = true
	}
	return nil
}
