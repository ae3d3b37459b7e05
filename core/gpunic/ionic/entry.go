// SPDX-License-Identifier: MIT

package ionic

import (
	"encoding/binary"
	"fmt"
)

// Sizes of struct ionic_v1_wqe.
const (
	EntryBytes = 64
	MaxInline  = 32
	MaxData    = 2
	payloadAt  = 32
)

// A Version is a version of the formats.
type Version uint32

// Versions.
const (
	Version1 Version = 1
	Version2 Version = 2
)

// An Op is the operation of an entry. Its number depends on the version.
type Op uint8

// Operations that both versions have. There is no NOP entry and there are no masked atomics.
const (
	OpSend Op = iota
	OpSendImm
	OpRead
	OpWrite
	OpWriteImm
	OpCompareSwap
	OpFetchAdd
	opEnd
)

// opcodes are those of enum ionic_v1_op and ionic_v2_op.
var opcodes = [opEnd][2]uint8{
	OpSend: {0, 0x20}, OpSendImm: {2, 0x60}, OpRead: {3, 0x02}, OpWrite: {4, 0x21}, OpWriteImm: {5, 0x61}, OpCompareSwap: {6, 0x04}, OpFetchAdd: {7, 0x05},
}

func (v Version) opcode(o Op) uint8 { return opcodes[o][min(max(v, 1), 2)-1] }

func (v Version) op(opcode uint8) (Op, bool) {
	for o := range opEnd {
		if v.opcode(o) == opcode {
			return o, true
		}
	}
	return 0, false
}

// Flags of an entry: IONIC_V1_FLAG_*.
const (
	FlagFence     = 1 << 0
	FlagSolicited = 1 << 1
	FlagInline    = 1 << 2
	FlagSignaled  = 1 << 3
	FlagColor     = 1 << 4 // set in the first lap over the ring, then toggles with each lap
	flagsKnown    = 1<<5 - 1
)

// A Data is a range of local memory: struct ionic_sge.
type Data struct {
	Addr       uint64
	Bytes, Key uint32
}

// An Entry is an entry of a send queue: struct ionic_v1_base_hdr, then ionic_v1_common_bdy,
// ionic_v1_atomic_bdy or ionic_v2_atomic_bdy.
type Entry struct {
	Index         uint64 // of its place
	Op            Op
	Flags         uint16
	Imm           uint32
	Remote        uint64
	RKey          uint32
	Bytes         uint32 // length of the payload; 8 for atomics
	Swap, Compare uint64 // of atomics; OpFetchAdd adds Swap
	Data          []Data
	Inline        []byte // instead of Data, with FlagInline
}

// IsAtomic reports whether the entry is an atomic.
func (e *Entry) IsAtomic() bool { return e.Op == OpCompareSwap || e.Op == OpFetchAdd }

// Put writes the entry to all EntryBytes of b.
func (e *Entry) Put(b []byte, v Version) {
	clear(b[:EntryBytes])
	be := binary.BigEndian
	binary.LittleEndian.PutUint64(b, e.Index)
	b[8], b[9] = v.opcode(e.Op), uint8(len(e.Data))
	be.PutUint16(b[10:], e.Flags)
	be.PutUint32(b[12:], e.Imm)
	be.PutUint64(b[16:], e.Remote)
	be.PutUint32(b[24:], e.RKey)
	if e.IsAtomic() {
		e.putAtomic(b, v)
		return
	}
	be.PutUint32(b[28:], e.Bytes)
	copy(b[payloadAt:], e.Inline)
	for i, d := range e.Data {
		putData(b[payloadAt+16*i:], d)
	}
}

func (e *Entry) putAtomic(b []byte, v Version) {
	be := binary.BigEndian
	be.PutUint64(b[28:], e.Swap)
	be.PutUint64(b[36:], e.Compare)
	if len(e.Data) == 0 {
		return
	}
	if v < Version2 {
		putData(b[48:], e.Data[0])
		return
	}
	be.PutUint32(b[44:], e.Data[0].Key)
	be.PutUint64(b[48:], e.Data[0].Addr)
}

func putData(b []byte, d Data) {
	binary.BigEndian.PutUint64(b, d.Addr)
	binary.BigEndian.PutUint32(b[8:], d.Bytes)
	binary.BigEndian.PutUint32(b[12:], d.Key)
}

func parseData(b []byte) Data {
	be := binary.BigEndian
	return Data{Addr: be.Uint64(b), Bytes: be.Uint32(b[8:]), Key: be.Uint32(b[12:])}
}

// Parse parses an entry of EntryBytes.
func (e *Entry) Parse(b []byte, v Version) error {
	if len(b) < EntryBytes {
		return fmt.Errorf("entry in %d bytes, want %d: %w", len(b), EntryBytes, ErrFormat)
	}
	be := binary.BigEndian
	op, known := v.op(b[8])
	*e = Entry{
		Index: binary.LittleEndian.Uint64(b), Op: op, Flags: be.Uint16(b[10:]), Imm: be.Uint32(b[12:]), Remote: be.Uint64(b[16:]), RKey: be.Uint32(b[24:]),
		Data: e.Data[:0],
	}
	switch {
	case !known || e.Flags&^flagsKnown != 0 || b[9] > MaxData:
		return fmt.Errorf("entry with opcode %#x, flags %#x and %d pieces of memory: %w", b[8], e.Flags, b[9], ErrFormat)
	case e.IsAtomic():
		return e.parseAtomic(b, v)
	}
	e.Bytes = be.Uint32(b[28:])
	if e.Flags&FlagInline != 0 {
		if e.Op == OpRead || b[9] != 0 || e.Bytes > MaxInline {
			return fmt.Errorf("opcode %#x with %d bytes inline: %w", b[8], e.Bytes, ErrFormat)
		}
		e.Inline = b[payloadAt : payloadAt+e.Bytes : payloadAt+e.Bytes]
		return nil
	}
	var sum uint64
	for i := range int(b[9]) {
		d := parseData(b[payloadAt+16*i:])
		e.Data = append(e.Data, d)
		sum += uint64(d.Bytes)
	}
	if sum != uint64(e.Bytes) {
		return fmt.Errorf("entry of %d bytes with memory for %d: %w", e.Bytes, sum, ErrFormat)
	}
	return nil
}

func (e *Entry) parseAtomic(b []byte, v Version) error {
	be := binary.BigEndian
	e.Bytes, e.Swap, e.Compare = 8, be.Uint64(b[28:]), be.Uint64(b[36:])
	d := Data{Addr: be.Uint64(b[48:]), Bytes: 8, Key: be.Uint32(b[44:])}
	if v < Version2 {
		d = parseData(b[48:])
	}
	if b[9] != 1 || d.Bytes != 8 || e.Flags&(FlagInline|FlagSolicited) != 0 {
		return fmt.Errorf("atomic with flags %#x, %d pieces of memory, the first of %d bytes: %w", e.Flags, b[9], d.Bytes, ErrFormat)
	}
	e.Data = append(e.Data, d)
	return nil
}
