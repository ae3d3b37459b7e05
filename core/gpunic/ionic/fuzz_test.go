// SPDX-License-Identifier: MIT

package ionic

import (
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/gpunic/internal/formattest"
)

// FuzzEntry: bytes of an entry are refused or taken apart, and written again they are the same
// where they mean something.
func FuzzEntry(f *testing.F) {
	for _, e := range []Entry{
		{Op: OpWrite, Flags: FlagSignaled | FlagColor, Bytes: 8, Data: []Data{{Addr: 1, Key: 2, Bytes: 8}}},
		{Op: OpWriteImm, Flags: FlagInline, Imm: 1, Bytes: 32, Inline: make([]byte, 32)},
		{Op: OpFetchAdd, Bytes: 8, Swap: 1, Data: []Data{{Bytes: 8}}},
		{Op: OpSend},
	} {
		for _, v := range []Version{Version1, Version2} {
			b := make([]byte, EntryBytes)
			e.Put(b, v)
			f.Add(b, v == Version2)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, second bool) {
		v := Version1
		if second {
			v = Version2
		}
		var e Entry
		var err error
		decodetest.Bounded(t, len(b), func() { err = e.Parse(b, v) })
		if err != nil {
			return
		}
		if len(e.Inline) > MaxInline || len(e.Data) > MaxData {
			t.Fatalf("%+v out of %d bytes", e, len(b))
		}
		formattest.Rewritten(t, EntryBytes, &e, func(e *Entry, b []byte) { e.Put(b, v) }, func(e *Entry, b []byte) error { return e.Parse(b, v) })
	})
}

// FuzzWords: doorbells and completions of any bits are read, and what is valid comes back the same.
func FuzzWords(f *testing.F) {
	f.Add(Bell{Queue: 1, Index: 2}.Value(), make([]byte, CQEBytes))
	f.Fuzz(func(t *testing.T, v uint64, b []byte) {
		formattest.SameBell(t, v, ParseBell, Bell.Value)
		if len(b) < CQEBytes {
			return
		}
		var c CQE
		decodetest.Bounded(t, len(b), func() { c = ParseCQE(b) })
		formattest.Same(t, CQEBytes, c, CQE.Put, ParseCQE)
	})
}
