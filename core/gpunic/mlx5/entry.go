// SPDX-License-Identifier: MIT

package mlx5

import (
	"encoding/binary"
	"fmt"
)

// An Entry is a parsed entry of a send queue. All slices except Data point into the bytes that it
// was parsed from.
type Entry struct {
	Control
	Remote Remote // of writes, reads and atomics
	Atomic Atomic
	Data   []Data // local memory
	Inline []byte // or the bytes themselves
}

// Bytes returns the bytes that the entry moves.
func (e *Entry) Bytes() uint64 {
	n := uint64(len(e.Inline))
	for _, d := range e.Data {
		n += uint64(d.Bytes)
	}
	return n
}

// IsAtomic reports whether the entry is an atomic.
func (e *Entry) IsAtomic() bool {
	switch e.Opcode {
	case OpCompareSwap, OpFetchAdd, OpMaskedSwap, OpMaskedAdd:
		return true
	}
	return false
}

// Parse parses the bytes of an entry, whole segments. It rejects entries that would put the NIC's
// queue pair into the error state.
func (e *Entry) Parse(b []byte) error {
	if len(b) < SegmentBytes {
		return fmt.Errorf("entry of %d bytes: %w", len(b), ErrFormat)
	}
	*e = Entry{Control: ParseControl(b), Data: e.Data[:0]}
	if n := int(e.Segments); n == 0 || n*SegmentBytes > len(b) {
		return fmt.Errorf("entry of %d segments in %d bytes: %w", n, len(b), ErrFormat)
	}
	rest := b[SegmentBytes : int(e.Segments)*SegmentBytes]
	switch {
	case e.Opcode == OpNop:
		return nil
	case e.Opcode == OpSend || e.Opcode == OpSendImm:
		return e.parseLocal(rest)
	case e.Opcode != OpWrite && e.Opcode != OpWriteImm && e.Opcode != OpRead && !e.IsAtomic():
		return fmt.Errorf("entry with opcode %#x: %w", e.Opcode, ErrFormat)
	case len(rest) < SegmentBytes:
		return fmt.Errorf("entry without an address of the peer: %w", ErrFormat)
	}
	e.Remote, rest = parseRemote(rest), rest[SegmentBytes:]
	if e.IsAtomic() {
		a, err := parseAtomic(rest, e.Control)
		if err != nil {
			return err
		}
		e.Atomic, rest = a, rest[AtomicSegments(e.Opcode, a.Width)*SegmentBytes:]
	}
	if err := e.parseLocal(rest); err != nil {
		return err
	}
	if e.Inline != nil && (e.Opcode == OpRead || e.IsAtomic()) {
		return fmt.Errorf("opcode %#x with inline data: %w", e.Opcode, ErrFormat)
	}
	if e.IsAtomic() && e.Bytes() != uint64(e.Atomic.Width) {
		return fmt.Errorf("atomic of %d bytes with room for %d: %w", e.Atomic.Width, e.Bytes(), ErrFormat)
	}
	return nil
}

// parseLocal parses the local side of an entry: data segments, or one piece of inline data.
func (e *Entry) parseLocal(b []byte) error {
	for len(b) >= SegmentBytes {
		if head := binary.BigEndian.Uint32(b); head&inlineBit != 0 {
			n := int(head &^ inlineBit)
			if n > len(b)-4 || e.Inline != nil || len(e.Data) > 0 || InlineSegments(n)*SegmentBytes != len(b) {
				return fmt.Errorf("%d bytes of inline data in %d: %w", n, len(b), ErrFormat)
			}
			e.Inline = b[4 : 4+n : 4+n]
			return nil
		}
		if d := ParseData(b); d.Bytes != 0 {
			e.Data = append(e.Data, d)
		}
		b = b[SegmentBytes:]
	}
	return nil
}
