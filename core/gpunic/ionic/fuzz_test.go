// SPDX-License-Identifier: MIT

package ionic

import (
	"bytes"
	"testing"

	"mori/core/decode/decodetest"
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
		var e, again Entry
		var err error
		decodetest.Bounded(t, len(b), func() { err = e.Parse(b, v) })
		if err != nil {
			return
		}
		if len(e.Inline) > MaxInline || len(e.Data) > MaxData {
			t.Fatalf("%+v out of %d bytes", e, len(b))
		}
		written, third := make([]byte, EntryBytes), make([]byte, EntryBytes)
		e.Put(written, v)
		if err := again.Parse(written, v); err != nil {
			t.Fatalf("%+v is refused when it comes back: %v", e, err)
		}
		if again.Put(third, v); !bytes.Equal(third, written) {
			t.Fatalf("%+v came back as %+v", e, again)
		}
	})
}

// FuzzWords: doorbells and completions of any bits are read, and what is valid comes back the same.
func FuzzWords(f *testing.F) {
	f.Add(Bell{Queue: 1, Index: 2}.Value(), make([]byte, CQEBytes))
	f.Fuzz(func(t *testing.T, v uint64, b []byte) {
		if bell, err := ParseBell(v); err == nil && bell.Value() != v {
			t.Fatalf("%#x is %+v", v, bell)
		}
		if len(b) < CQEBytes {
			return
		}
		var c CQE
		decodetest.Bounded(t, len(b), func() { c = ParseCQE(b) })
		var again [CQEBytes]byte
		c.Put(again[:])
		if ParseCQE(again[:]) != c {
			t.Fatalf("%+v came back as %+v", c, ParseCQE(again[:]))
		}
	})
}
