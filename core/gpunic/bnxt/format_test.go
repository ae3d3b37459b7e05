// SPDX-License-Identifier: MIT

package bnxt

import (
	"bytes"
	"errors"
	"testing"

	"mori/core/gpunic/internal/formattest"
)

// TestGoldenEntries has bytes that were worked out by hand from the header's structs.
func TestGoldenEntries(t *testing.T) {
	mine := []Data{{Addr: 0x7f0011223344, Key: 0x5a, Bytes: 0x400}}
	for _, c := range []struct {
		name  string
		entry Entry
		want  string
	}{
		{"signaled write", Entry{Opcode: OpWrite, Flags: FlagSignaled, Bytes: 0x400, Remote: 0x1122334455667788, RKey: 0x99aabbcc, Data: mine},
			"04010300 00000000 00040000 00000000  8877665544332211 ccbbaa99 00000000  44332211007f0000 5a000000 00040000"},
		{"fenced read", Entry{Opcode: OpRead, Flags: FlagFence, Bytes: 0x400, Remote: 1, RKey: 2, Data: mine},
			"06040300 00000000 00040000 00000000  0100000000000000 02000000 00000000  44332211007f0000 5a000000 00040000"},
		{"solicited send with an immediate value", Entry{Opcode: OpSendImm, Flags: FlagSignaled | FlagSolicited, Imm: 0x01020304},
			"01090200 04030201 00000000 00000000  0000000000000000 0000000000000000"},
		{"inline write", Entry{Opcode: OpWrite, Flags: FlagSignaled | FlagInline, Bytes: 17, Remote: 1, RKey: 2, Inline: []byte("seventeen letters")},
			"04110400 00000000 11000000 00000000  0100000000000000 02000000 00000000  736576656e7465656e206c6574746572 73000000000000000000000000000000"},
		{"compare and swap", Entry{Opcode: OpCompareSwap, Flags: FlagSignaled, Bytes: 8, Remote: 0x10, RKey: 0x20, Swap: 0x30, Compare: 0x40,
			Data: []Data{{Addr: 0x50, Key: 0x60, Bytes: 8}}},
			"08010300 20000000 1000000000000000  3000000000000000 4000000000000000  5000000000000000 60000000 08000000"},
		{"fetch and add", Entry{Opcode: OpFetchAdd, Bytes: 8, Remote: 0x10, RKey: 0x20, Swap: 7, Data: []Data{{Addr: 0x50, Key: 0x60, Bytes: 8}}},
			"0b000300 20000000 1000000000000000  0700000000000000 0000000000000000  5000000000000000 60000000 08000000"},
	} {
		want := formattest.Unhex(c.want)
		got := bytes.Repeat([]byte{0xee}, EntryBytes)
		if n := c.entry.Put(got); n*SlotBytes != len(want) || !bytes.Equal(got[:len(want)], want) || got[len(want)] != 0xee {
			t.Errorf("%s: %d slots, %x, want %x", c.name, n, got[:len(want)], want)
		}
	}
}

func TestGoldenWords(t *testing.T) {
	row := Row{Index: 0x0102, Start: 0xfffffe, Next: 0x1000003}
	if got := row.Value(); got != 0x0102_000003_fffffe {
		t.Errorf("row: %#x", got)
	}
	for _, c := range []struct {
		bell Bell
		want uint64
	}{
		{Bell{Type: BellSend, Queue: 0xabcde, Index: 0x1234}, 0x040abcde_00001234},
		{Bell{Type: BellSend, Queue: 1, Index: 0, Epoch: true}, 0x04000001_01000000},
		{Bell{Type: BellCompletion, Queue: 0x12345, Index: 7}, 0x44012345_00000007},
	} {
		if got := c.bell.Value(); got != c.want {
			t.Errorf("%+v: %#x, want %#x", c.bell, got, c.want)
		}
		if back, err := ParseBell(c.want); err != nil || back != c.bell {
			t.Errorf("%#x: %+v, %v", c.want, back, err)
		}
	}
	if _, err := ParseBell(0x00012345_00000007); !errors.Is(err, ErrFormat) {
		t.Errorf("a doorbell that is not valid: %v", err)
	}
	b := make([]byte, CQEBytes)
	CQE{Handle: 5, Index: 0x102, Type: CQERequester, Status: StatusRemoteAccess, Phase: true}.Put(b)
	if want := formattest.Unhex("0500000000000000 02010000 00000000 0000000000000000 01070000 00000000"); !bytes.Equal(b, want) {
		t.Errorf("completion: %x, want %x", b, want)
	}
}

func TestPackets(t *testing.T) {
	for bytes, want := range map[uint32]uint32{0: 1, 1: 1, 256: 1, 257: 2, 1024: 4} {
		if got := (&Entry{Bytes: bytes}).Packets(256); got != want {
			t.Errorf("%d bytes are %d packets of 256, want %d", bytes, got, want)
		}
	}
}

func TestWhatNoDriverWrites(t *testing.T) {
	formattest.Refused(t, EntryBytes, ErrFormat, func(b []byte) error { return new(Entry).Parse(b) }, map[string]string{
		"no slots":            "04000000",
		"too many slots":      "04000900",
		"opcode":              "07000200",
		"inline read":         "06100300 00000000 04000000",
		"more bytes than fit": "04100300 00000000 20000000",
		"no memory":           "04000200 00000000 20000000",
	})
}
