// SPDX-License-Identifier: MIT

package ionic

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"mori/core/gpunic/internal/formattest"
)

// TestGoldenEntries has bytes that were worked out by hand from the header's structs.
func TestGoldenEntries(t *testing.T) {
	mine := []Data{{Addr: 0x7f0011223344, Bytes: 0x400, Key: 0x5a}}
	eight := []Data{{Addr: 0x50, Bytes: 8, Key: 0x60}}
	write := Entry{Index: 0x1234, Op: OpWrite, Flags: FlagSignaled | FlagColor, Remote: 0x1122334455667788, RKey: 0x99aabbcc, Bytes: 0x400, Data: mine}
	add := Entry{Op: OpFetchAdd, Remote: 0x10, RKey: 0x20, Bytes: 8, Swap: 0x0102030405060708, Data: eight}
	swap := Entry{Op: OpCompareSwap, Flags: FlagFence, Remote: 0x10, RKey: 0x20, Bytes: 8, Swap: 0x30, Compare: 0x40, Data: eight}
	for _, c := range []struct {
		name    string
		version Version
		entry   Entry
		want    string
	}{
		{"write", Version1, write,
			"3412000000000000 04 01 0018 00000000  1122334455667788 99aabbcc 00000400  00007f0011223344 00000400 0000005a  " + zeros(16)},
		{"write", Version2, write,
			"3412000000000000 21 01 0018 00000000  1122334455667788 99aabbcc 00000400  00007f0011223344 00000400 0000005a  " + zeros(16)},
		{"send with an immediate value", Version2, Entry{Op: OpSendImm, Flags: FlagSolicited | FlagSignaled, Imm: 0x01020304},
			"0000000000000000 60 00 000a 01020304 " + zeros(48)},
		{"inline write", Version1, Entry{Index: 1, Op: OpWrite, Flags: FlagInline, Remote: 1, RKey: 2, Bytes: 5, Inline: []byte("hello")},
			"0100000000000000 04 00 0004 00000000  0000000000000001 00000002 00000005  68656c6c6f " + zeros(27)},
		{"fetch and add", Version1, add,
			"0000000000000000 07 01 0000 00000000  0000000000000010 00000020 0102030405060708 0000000000000000 00000000 0000000000000050 00000008 00000060"},
		{"fetch and add", Version2, add,
			"0000000000000000 05 01 0000 00000000  0000000000000010 00000020 0102030405060708 0000000000000000 00000060 0000000000000050 0000000000000000"},
		{"compare and swap", Version2, swap,
			"0000000000000000 04 01 0001 00000000  0000000000000010 00000020 0000000000000030 0000000000000040 00000060 0000000000000050 0000000000000000"},
		{"read", Version2, Entry{Op: OpRead, Remote: 1, RKey: 2, Bytes: 0x400, Data: mine},
			"0000000000000000 02 01 0000 00000000  0000000000000001 00000002 00000400  00007f0011223344 00000400 0000005a  " + zeros(16)},
	} {
		want := formattest.Unhex(c.want)
		got := bytes.Repeat([]byte{0xee}, EntryBytes)
		c.entry.Put(got, c.version)
		if len(want) != EntryBytes || !bytes.Equal(got, want) {
			t.Errorf("%s of version %d: %x, want %x", c.name, c.version, got, want)
		}
		var back Entry
		again := make([]byte, EntryBytes)
		if err := back.Parse(got, c.version); err != nil {
			t.Errorf("%s of version %d: %v", c.name, c.version, err)
		}
		if back.Put(again, c.version); !bytes.Equal(again, got) {
			t.Errorf("%s of version %d came back as %+v", c.name, c.version, back)
		}
	}
}

func zeros(n int) string { return strings.Repeat("00", n) }

func TestGoldenWords(t *testing.T) {
	if got := (Bell{Queue: 0xabcdef, Index: 0x1234}).Value(); got != 0x0000abcdef001234 {
		t.Errorf("doorbell: %#x", got)
	}
	for _, v := range []uint64{1 << 16, 1 << 48} {
		if b, err := ParseBell(v); !errors.Is(err, ErrFormat) {
			t.Errorf("%#x: %+v, %v", v, b, err)
		}
	}
	b := make([]byte, CQEBytes)
	CQE{MSN: 0x102, Queue: 0xabcdef, Type: CQESendMSN, Color: true}.Put(b)
	if want := formattest.Unhex("00000000 00000102 0000000000000000 0000000000000000 00000000 abcdef41"); !bytes.Equal(b, want) {
		t.Errorf("completion: %x, want %x", b, want)
	}
	CQE{Index: 0x102, Status: StatusFlush, Queue: 1, Type: CQESendNPG, Error: true}.Put(b)
	if want := formattest.Unhex("00000000 00000000 0000000000000000 0201000000000000 00000004 00000162"); !bytes.Equal(b, want) {
		t.Errorf("error: %x, want %x", b, want)
	}
}

func TestWhatNoDriverWrites(t *testing.T) {
	formattest.Refused(t, EntryBytes, ErrFormat, func(b []byte) error { return new(Entry).Parse(b, Version2) }, map[string]string{
		"opcode of the other version": "0000000000000000 04 00 0000",
		"a list of lengths":           "0000000000000000 21 00 1000",
		"three pieces of memory":      "0000000000000000 21 03 0000",
		"inline read":                 "0000000000000000 02 00 0004",
		"no memory":                   "0000000000000000 21 00 0000 00000000 0000000000000000 00000000 00000001",
		"too much inline":             "0000000000000000 21 00 0004 00000000 0000000000000000 00000000 00000021",
		"solicited atomic":            "0000000000000000 05 01 0002",
	})
}
