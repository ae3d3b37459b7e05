// SPDX-License-Identifier: MIT

package bnxt

import (
	"encoding/binary"
	"fmt"
)

// Sizes. An entry consists of slots. In the static mode it occupies eight (STATIC_WQE_NUM_SLOTS of
// main.h).
const (
	SlotBytes  = 16
	EntrySlots = 8
	EntryBytes = SlotBytes * EntrySlots
	MaxInline  = 0x60 // BNXT_RE_MAX_INLINE_SIZE
	MaxData    = 6    // BNXT_RE_STATIC_WQE_MAX_SGE
)

// Opcodes: enum bnxt_re_wr_opcode. There is no NOP entry and there are no masked atomics.
const (
	OpSend        = 0x00
	OpSendImm     = 0x01
	OpWrite       = 0x04
	OpWriteImm    = 0x05
	OpRead        = 0x06
	OpCompareSwap = 0x08
	OpFetchAdd    = 0x0b
)

// Flags of an entry: enum bnxt_re_wr_flags. Both drivers request a fence with FlagFence.
const (
	FlagSignaled  = 0x01
	FlagReadFence = 0x02
	FlagFence     = 0x04 // UC_FENCE
	FlagSolicited = 0x08
	FlagInline    = 0x10
)

// A Data is a range of local memory: struct bnxt_re_sge.
type Data struct {
	Addr       uint64
	Key, Bytes uint32
}

// An Entry is an entry of a send queue: struct bnxt_re_bsqe, then bnxt_re_rdma or bnxt_re_atomic,
// then data.
type Entry struct {
	Opcode, Flags uint8
	Imm           uint32 // of OpSendImm and OpWriteImm
	Bytes         uint32 // length of the payload; 8 for atomics
	Remote        uint64 // of all but sends
	RKey          uint32
	Swap, Compare uint64 // of atomics; OpFetchAdd adds Swap
	Data          []Data
	Inline        []byte // instead of Data, with FlagInline
}

// IsAtomic reports whether the entry is an atomic.
func (e *Entry) IsAtomic() bool { return e.Opcode == OpCompareSwap || e.Opcode == OpFetchAdd }

// Packets returns how many sequence numbers the entry takes.
func (e *Entry) Packets(mtu uint32) uint32 { return max(1, (e.Bytes+mtu-1)/mtu) }

// Put writes the entry to the EntryBytes of b and returns how many slots it uses. It does not
// change the slots after them.
func (e *Entry) Put(b []byte) (slots int) {
	slots = 2 + len(e.Data)
	if e.Flags&FlagInline != 0 {
		slots = 2 + (len(e.Inline)+SlotBytes-1)/SlotBytes
	}
	le := binary.LittleEndian
	clear(b[:slots*SlotBytes])
	le.PutUint32(b, uint32(e.Opcode)|uint32(e.Flags)<<8|uint32(slots)<<16)
	switch {
	case e.IsAtomic():
		le.PutUint32(b[4:], e.RKey)
		le.PutUint64(b[8:], e.Remote)
		le.PutUint64(b[16:], e.Swap)
		le.PutUint64(b[24:], e.Compare)
	default:
		le.PutUint32(b[4:], e.Imm)
		le.PutUint32(b[8:], e.Bytes)
		if e.Opcode != OpSend && e.Opcode != OpSendImm {
			le.PutUint64(b[16:], e.Remote)
			le.PutUint32(b[24:], e.RKey)
		}
	}
	at := b[2*SlotBytes:]
	copy(at, e.Inline)
	for i, d := range e.Data {
		le.PutUint64(at[i*SlotBytes:], d.Addr)
		le.PutUint32(at[i*SlotBytes+8:], d.Key)
		le.PutUint32(at[i*SlotBytes+12:], d.Bytes)
	}
	return slots
}

// Parse parses the entry in the EntryBytes of b.
func (e *Entry) Parse(b []byte) error {
	if len(b) < EntryBytes {
		return fmt.Errorf("entry in %d bytes, want %d: %w", len(b), EntryBytes, ErrFormat)
	}
	le := binary.LittleEndian
	word := le.Uint32(b)
	slots := int(uint8(word >> 16))
	*e = Entry{Opcode: uint8(word), Flags: uint8(word >> 8), Data: e.Data[:0]}
	if slots < 2 || slots > EntrySlots || word>>24 != 0 {
		return fmt.Errorf("entry that begins with %#x, of %d slots: %w", word, slots, ErrFormat)
	}
	switch e.Opcode {
	case OpCompareSwap, OpFetchAdd:
		e.Bytes, e.RKey, e.Remote = 8, le.Uint32(b[4:]), le.Uint64(b[8:])
		e.Swap, e.Compare = le.Uint64(b[16:]), le.Uint64(b[24:])
	case OpWrite, OpWriteImm, OpRead:
		e.Imm, e.Bytes, e.Remote, e.RKey = le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint64(b[16:]), le.Uint32(b[24:])
	case OpSend, OpSendImm:
		e.Imm, e.Bytes = le.Uint32(b[4:]), le.Uint32(b[8:])
	default:
		return fmt.Errorf("entry with opcode %#x: %w", e.Opcode, ErrFormat)
	}
	return e.parseLocal(b[2*SlotBytes:slots*SlotBytes], slots)
}

func (e *Entry) parseLocal(b []byte, slots int) error {
	if e.Flags&FlagInline != 0 {
		if e.Opcode == OpRead || e.IsAtomic() || e.Bytes > MaxInline || slots != 2+(int(e.Bytes)+SlotBytes-1)/SlotBytes {
			return fmt.Errorf("opcode %#x with %d bytes inline in %d slots: %w", e.Opcode, e.Bytes, slots, ErrFormat)
		}
		e.Inline = b[:e.Bytes:e.Bytes]
		return nil
	}
	le := binary.LittleEndian
	var sum uint64
	for ; len(b) > 0; b = b[SlotBytes:] {
		d := Data{Addr: le.Uint64(b), Key: le.Uint32(b[8:]), Bytes: le.Uint32(b[12:])}
		e.Data = append(e.Data, d)
		sum += uint64(d.Bytes)
	}
	if sum != uint64(e.Bytes) {
		return fmt.Errorf("entry of %d bytes with memory for %d: %w", e.Bytes, sum, ErrFormat)
	}
	return nil
}

// RowBytes is the size of a row of the table of packets.
const RowBytes = 8

// A Row has the packet numbers of an entry: struct bnxt_re_msns. The table follows the ring and has
// as many rows as the ring has entries.
type Row struct {
	Index       uint16 // of the entry's place
	Start, Next uint32 // 24 bits: the first packet's number, and the one after the last
}

// Value returns the row as in the table, little-endian.
func (r Row) Value() uint64 {
	return uint64(r.Index)<<48 | uint64(r.Next&psnMask)<<24 | uint64(r.Start&psnMask)
}

// ParseRow parses a value that Value returned.
func ParseRow(v uint64) Row {
	return Row{Index: uint16(v >> 48), Next: uint32(v>>24) & psnMask, Start: uint32(v) & psnMask}
}

const psnMask = 0xffffff
