// SPDX-License-Identifier: MIT

package mlx5

import (
	"bytes"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/gpunic/internal/formattest"
)

// FuzzEntry: bytes of an entry are refused or taken apart into what is within them.
func FuzzEntry(f *testing.F) {
	b := make([]byte, 128)
	Control{Opcode: OpWrite, Segments: 3}.Put(b)
	f.Add(bytes.Clone(b))
	Control{Opcode: OpMaskedSwap, OpMod: OpModMasked8, Segments: 5}.Put(b)
	Data{Bytes: 8}.Put(b[64:])
	f.Add(bytes.Clone(b))
	Control{Opcode: OpWrite, Segments: 8}.Put(b)
	PutInline(b[32:], make([]byte, 90))
	f.Add(bytes.Clone(b))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Entry
		var err error
		decodetest.Bounded(t, len(b), func() { err = e.Parse(b) })
		if err != nil {
			return
		}
		if n := int(e.Segments) * SegmentBytes; n > len(b) || len(e.Inline) > n || len(e.Data) > int(e.Segments) {
			t.Fatalf("%+v out of %d bytes", e, len(b))
		}
		formattest.Same(t, SegmentBytes, e.Control, Control.Put, ParseControl)
	})
}

// FuzzCommand: each message is read from any bytes, and written again it is the same to who reads
// it.
func FuzzCommand(f *testing.F) {
	for i, m := range messages() {
		f.Add(i, Encode(m))
	}
	f.Fuzz(func(t *testing.T, kind int, b []byte) {
		all := messages()
		if kind < 0 || kind >= len(all) {
			return
		}
		m := all[kind]
		var err error
		decodetest.Bounded(t, len(b), func() {
			_ = OpOf(b)
			err = Decode(b, m)
		})
		if err != nil {
			return
		}
		again := messages()[kind]
		written := Encode(m)
		if err := Decode(written, again); err != nil || !bytes.Equal(written, Encode(again)) {
			t.Fatalf("%+v came back as %+v: %v", m, again, err)
		}
	})
}

// FuzzCQE: any 64 bytes are read, and what is read is written so that it reads the same.
func FuzzCQE(f *testing.F) {
	b := make([]byte, CQEBytes)
	(&CQE{Opcode: CQEReqError, Syndrome: SyndromeRetry, Counter: 7}).Put(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < CQEBytes {
			return
		}
		var c CQE
		decodetest.Bounded(t, len(b), func() { c = ParseCQE(b) })
		formattest.Same(t, CQEBytes, c, func(c CQE, b []byte) { c.Put(b) }, ParseCQE)
	})
}
