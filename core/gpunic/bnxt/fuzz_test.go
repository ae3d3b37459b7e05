// SPDX-License-Identifier: MIT

package bnxt

import (
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/gpunic/internal/formattest"
)

// FuzzEntry: bytes of an entry are refused or taken apart, and written again they are the same
// where they mean something.
func FuzzEntry(f *testing.F) {
	for _, e := range []Entry{
		{Opcode: OpWrite, Flags: FlagSignaled, Bytes: 8, Data: []Data{{Addr: 1, Key: 2, Bytes: 8}}},
		{Opcode: OpWriteImm, Flags: FlagInline, Imm: 1, Bytes: 96, Inline: make([]byte, 96)},
		{Opcode: OpFetchAdd, Bytes: 8, Swap: 1, Data: []Data{{Bytes: 8}}},
		{Opcode: OpSend},
	} {
		b := make([]byte, EntryBytes)
		e.Put(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Entry
		var err error
		decodetest.Bounded(t, len(b), func() { err = e.Parse(b) })
		if err != nil {
			return
		}
		if len(e.Inline) > MaxInline || len(e.Data) > MaxData {
			t.Fatalf("%+v out of %d bytes", e, len(b))
		}
		formattest.Rewritten(t, EntryBytes, &e, func(e *Entry, b []byte) { e.Put(b) }, (*Entry).Parse)
	})
}

// FuzzWords: doorbells, rows and completions of any bits are read, and what is valid comes back the
// same.
func FuzzWords(f *testing.F) {
	f.Add(Bell{Type: BellCompletion, Queue: 1, Index: 2, Epoch: true}.Value(), make([]byte, CQEBytes))
	f.Fuzz(func(t *testing.T, v uint64, b []byte) {
		formattest.SameBell(t, v, ParseBell, Bell.Value)
		if row := ParseRow(v); row.Value() != v {
			t.Fatalf("%#x is %+v", v, row)
		}
		if len(b) < CQEBytes {
			return
		}
		var c CQE
		decodetest.Bounded(t, len(b), func() { c = ParseCQE(b) })
		formattest.Same(t, CQEBytes, c, CQE.Put, ParseCQE)
	})
}
