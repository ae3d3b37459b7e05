// SPDX-License-Identifier: MIT

package mlx5

import (
	"encoding/binary"
	"fmt"
)

// The send queue is a ring of blocks. An entry consists of 16-byte segments and occupies whole
// blocks. Only entries of more than one block can wrap around the ring's end.
const (
	BlockBytes   = 64 // MLX5_SEND_WQE_BB
	SegmentBytes = 16
	MaxSegments  = 0x3f // MLX5_WQE_CTRL_DS_MASK
)

// Opcodes of entries: MLX5_OPCODE_* of mlx5dv.h, except the masked atomics, which are as in
// NVSHMEM's ibgda and MORI.
const (
	OpNop              = 0x00
	OpWrite            = 0x08
	OpWriteImm         = 0x09
	OpSend             = 0x0a
	OpSendImm          = 0x0b
	OpRead             = 0x10
	OpCompareSwap      = 0x11
	OpFetchAdd         = 0x12
	OpMaskedSwap       = 0x14
	OpMaskedAdd        = 0x15
	OpModMasked4  byte = 0x08
	OpModMasked8  byte = 0x09
)

// Flags of a Control: MLX5_WQE_CTRL_* of mlx5dv.h.
const (
	FlagSolicited = 0x02
	FlagSignalled = 0x08 // CQ_UPDATE
	FlagFence     = 0x80
)

// A Control is the first segment of each entry.
type Control struct {
	OpMod, Opcode uint8
	Index         uint16 // of the entry's first block, counted from the queue's first one, modulo 65536
	QPN           uint32
	Segments      uint8 // of the entry, including this one
	Flags         uint8
	Imm           uint32 // of OpWriteImm and OpSendImm
}

// Blocks returns how many blocks the entry occupies.
func (c Control) Blocks() int { return (int(c.Segments) + 3) / 4 }

// Put writes the segment to 16 bytes of b.
func (c Control) Put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(c.OpMod)<<24|uint32(c.Index)<<8|uint32(c.Opcode))
	binary.BigEndian.PutUint32(b[4:], c.QPN<<8|uint32(c.Segments))
	binary.BigEndian.PutUint32(b[8:], uint32(c.Flags)) // signature and stream are 0
	binary.BigEndian.PutUint32(b[12:], c.Imm)
}

// ParseControl parses the segment from 16 bytes.
func ParseControl(b []byte) Control {
	first, second := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	return Control{
		OpMod: uint8(first >> 24), Index: uint16(first >> 8), Opcode: uint8(first), QPN: second >> 8, Segments: uint8(second) & MaxSegments,
		Flags: b[11], Imm: binary.BigEndian.Uint32(b[12:]),
	}
}

// A Remote is memory of the peer.
type Remote struct {
	Addr uint64
	Key  uint32
}

// Put writes the segment to 16 bytes of b.
func (r Remote) Put(b []byte) {
	binary.BigEndian.PutUint64(b, r.Addr)
	binary.BigEndian.PutUint32(b[8:], r.Key)
	binary.BigEndian.PutUint32(b[12:], 0)
}

func parseRemote(b []byte) Remote {
	return Remote{Addr: binary.BigEndian.Uint64(b), Key: binary.BigEndian.Uint32(b[8:])}
}

// A Data is a range of local memory. In a receive entry that is not full, InvalidLKey marks the end
// of the list.
type Data struct {
	Bytes, Key uint32
	Addr       uint64
}

// InvalidLKey ends the list of a receive entry: MLX5_INVALID_LKEY.
const InvalidLKey = 0x100

// Put writes the segment to 16 bytes of b.
func (d Data) Put(b []byte) {
	binary.BigEndian.PutUint32(b, d.Bytes)
	binary.BigEndian.PutUint32(b[4:], d.Key)
	binary.BigEndian.PutUint64(b[8:], d.Addr)
}

// ParseData parses the segment from 16 bytes.
func ParseData(b []byte) Data {
	return Data{Bytes: binary.BigEndian.Uint32(b), Key: binary.BigEndian.Uint32(b[4:]), Addr: binary.BigEndian.Uint64(b[8:])}
}

// inlineBit means that data follows instead of an address: MLX5_INLINE_SEG.
const inlineBit = 0x80000000

// PutInline writes data as inline data, padded with zeros to a whole segment. It returns the number
// of segments.
func PutInline(b, data []byte) int {
	n := InlineSegments(len(data))
	clear(b[:n*SegmentBytes])
	binary.BigEndian.PutUint32(b, inlineBit|uint32(len(data)))
	copy(b[4:], data)
	return n
}

// InlineSegments returns how many segments n bytes of inline data take.
func InlineSegments(n int) int { return (4 + n + SegmentBytes - 1) / SegmentBytes }

// An Atomic has the operands of an atomic. OpFetchAdd and OpMaskedAdd add Swap. For OpMaskedAdd,
// SwapMask has the top bit of each field; no carry crosses these bits.
type Atomic struct {
	Width                               int // in bytes: 8, or 4 for masked ones
	Swap, Compare, SwapMask, CompareMsk uint64
}

// AtomicSegments returns how many segments the operands of an atomic take.
func AtomicSegments(opcode uint8, width int) int {
	if opcode == OpMaskedSwap && width == 8 {
		return 2
	}
	return 1
}

// Put writes the operands in the format of opcode. It returns the number of segments.
func (a Atomic) Put(b []byte, opcode uint8) int {
	n := AtomicSegments(opcode, a.Width)
	clear(b[:n*SegmentBytes])
	be := binary.BigEndian
	switch {
	case opcode == OpMaskedSwap && a.Width == 4:
		be.PutUint32(b, uint32(a.Swap))
		be.PutUint32(b[4:], uint32(a.Compare))
		be.PutUint32(b[8:], uint32(a.SwapMask))
		be.PutUint32(b[12:], uint32(a.CompareMsk))
	case opcode == OpMaskedSwap:
		be.PutUint64(b, a.Swap)
		be.PutUint64(b[8:], a.Compare)
		be.PutUint64(b[16:], a.SwapMask)
		be.PutUint64(b[24:], a.CompareMsk)
	case opcode == OpMaskedAdd && a.Width == 4:
		be.PutUint32(b, uint32(a.Swap))
		be.PutUint32(b[4:], uint32(a.SwapMask))
	case opcode == OpMaskedAdd:
		be.PutUint64(b, a.Swap)
		be.PutUint64(b[8:], a.SwapMask)
	default:
		be.PutUint64(b, a.Swap)
		be.PutUint64(b[8:], a.Compare)
	}
	return n
}

func parseAtomic(b []byte, c Control) (a Atomic, err error) {
	a.Width = 8
	if c.Opcode == OpMaskedSwap || c.Opcode == OpMaskedAdd {
		switch c.OpMod {
		case OpModMasked4:
			a.Width = 4
		case OpModMasked8:
		default:
			return a, fmt.Errorf("masked atomic with modifier %#x: %w", c.OpMod, ErrFormat)
		}
	}
	if len(b) < AtomicSegments(c.Opcode, a.Width)*SegmentBytes {
		return a, fmt.Errorf("atomic without its operands: %w", ErrFormat)
	}
	be := binary.BigEndian
	switch {
	case c.Opcode == OpMaskedSwap && a.Width == 4:
		a.Swap, a.Compare = uint64(be.Uint32(b)), uint64(be.Uint32(b[4:]))
		a.SwapMask, a.CompareMsk = uint64(be.Uint32(b[8:])), uint64(be.Uint32(b[12:]))
	case c.Opcode == OpMaskedSwap:
		a.Swap, a.Compare, a.SwapMask, a.CompareMsk = be.Uint64(b), be.Uint64(b[8:]), be.Uint64(b[16:]), be.Uint64(b[24:])
	case c.Opcode == OpMaskedAdd && a.Width == 4:
		a.Swap, a.SwapMask = uint64(be.Uint32(b)), uint64(be.Uint32(b[4:]))
	case c.Opcode == OpMaskedAdd:
		a.Swap, a.SwapMask = be.Uint64(b), be.Uint64(b[8:])
	default:
		a.Swap, a.Compare = be.Uint64(b), be.Uint64(b[8:])
	}
	return a, nil
}
