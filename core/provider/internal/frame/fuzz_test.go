// SPDX-License-Identifier: MIT

package frame

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/fabric/util/atomics"
)

// compareSwap is a compare-and-swap of 64-bit numbers.
const compareSwap = uint32(fabric.OpCompareAtomic)<<16 | uint32(fabric.AtomicCSwap)<<8 | uint32(fabric.Uint64)

func put(h *Header) []byte {
	b := make([]byte, HeaderLen)
	h.Put(b)
	return b
}

func FuzzFrameHeader(f *testing.F) {
	for k := KindSend; k < KindEnd; k++ {
		f.Add(put(&Header{Kind: k, Ticket: 9, Count: 1, Length: 64, Region: 3, Data: 1 << 40}))
	}
	f.Add(put(&Header{Kind: KindAtomic, Count: compareSwap, Length: 64, Region: 77, Data: 8}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		var err error
		decodetest.Bounded(t, len(b), func() { err = ParseHeader(&h, b) })
		if err != nil {
			return
		}
		code, entries := AtomicCode(h.Count), h.Count
		if h.Kind == KindAtomic {
			entries = 0
		}
		if entries > MaxSegments || h.Length > MaxMsg || h.Kind == 0 || h.Kind >= KindEnd {
			t.Fatalf("taken: %+v", h)
		}
		if h.Kind == KindAtomic && (!fabric.AtomicValid(code.Kind(), code.Op(), code.Type()) || code.PayloadLen(h.Length) > 2*atomics.MaxBytes) {
			t.Fatalf("taken: %+v", h)
		}
		if again := put(&h); !bytes.Equal(again[:56], b[:56]) {
			t.Fatalf("%x becomes %x", b[:HeaderLen], again)
		}
	})
}

func FuzzSegmentTable(f *testing.F) {
	table := make([]byte, 2*SegmentLen)
	PutSegment(table, 1, 2)
	PutSegment(table[SegmentLen:], 3, 4)
	f.Add(table, uint64(6))
	f.Add(bytes.Repeat([]byte{0xff}, 32), uint64(1<<30))
	f.Fuzz(func(t *testing.T, b []byte, limit uint64) {
		var total, sum uint64
		var segs []fabric.RSeg
		var err error
		decodetest.Bounded(t, len(b), func() { segs, err = AppendSegments(nil, b, &total, limit) })
		if total > limit {
			t.Fatalf("%d bytes within %d", total, limit)
		}
		for _, s := range segs {
			sum += s.Len
		}
		if sum != total {
			t.Fatalf("segments of %d bytes counted as %d", sum, total)
		}
		if err == nil && len(segs) != len(b)/SegmentLen {
			t.Fatalf("%d segments in %d bytes", len(segs), len(b))
		}
	})
}

// FuzzEntries decodes any bytes as an acknowledgment and as a trailer.
func FuzzEntries(f *testing.F) {
	ack, trailer := make([]byte, AckLen), make([]byte, TrailerLen)
	Ack{3, fabric.ErrAccess}.Put(ack)
	PutTrailer(trailer, fabric.ErrAccess)
	f.Add(ack)
	f.Add(trailer)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < max(AckLen, TrailerLen) {
			return
		}
		var a Ack
		var errno fabric.Errno
		var unaltered bool
		decodetest.Bounded(t, len(b), func() { a = ParseAck(b) })
		decodetest.Bounded(t, len(b), func() { errno, unaltered = ParseTrailer(b) })
		again := make([]byte, max(AckLen, TrailerLen))
		if a.Put(again); a.Errno != fabric.ErrOther && !bytes.Equal(again[:AckLen], b[:AckLen]) {
			t.Errorf("%x becomes %x", b[:AckLen], again)
		}
		if PutTrailer(again, errno); unaltered && errno != fabric.ErrOther && !bytes.Equal(again[:TrailerLen], b[:TrailerLen]) {
			t.Errorf("%x becomes %x", b[:TrailerLen], again)
		}
	})
}

func FuzzHandshake(f *testing.F) {
	h := Handshake{Min: Version, Max: Version, Links: 1, Nonce: [16]byte{7}, Tx: 8, Private: []byte("hi")}
	a := HandshakeReply{Version: Version, Verdict: Rejected, Tx: 4, Private: []byte("no")}
	f.Add(h.Append(nil))
	f.Add(a.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Handshake
		var a HandshakeReply
		var err error
		decodetest.Bounded(t, len(b), func() { h, err = ReadHandshake(bytes.NewReader(b)) })
		if err == nil {
			badLink := h.Links == 0 || h.Links > MaxLinks || h.Link >= h.Links
			if badLink || len(h.Private) > MaxPrivate || h.Tx == 0 || h.Tx > MaxTx {
				t.Fatalf("taken: %+v", h)
			}
			if again := h.Append(nil); !bytes.Equal(again, b[:len(again)]) {
				t.Fatalf("%x becomes %x", b, again)
			}
		}
		decodetest.Bounded(t, len(b), func() { a, err = ReadHandshakeReply(bytes.NewReader(b)) })
		if err == nil {
			if again := a.Append(nil); !bytes.Equal(again, b[:len(again)]) || len(a.Private) > MaxPrivate {
				t.Fatalf("%x becomes %x", b, again)
			}
		}
	})
}

// FuzzDecompress decompresses any bytes to any length. The n bytes of the claim count as received,
// because they already have a destination: a region whose key the peer has shown, or a read of
// ours.
func FuzzDecompress(f *testing.F) {
	if !CanCompress {
		f.Skip("this build has no zstd")
	}
	for _, plain := range [][]byte{make([]byte, 300), halfBytes(1000), incompressible(4096), halfBytes(200 << 10), make([]byte, 1<<20)} {
		f.Add(compress(f, plain), uint32(len(plain)))
		f.Add(compress(f, plain), uint32(len(plain)-1))
	}
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x01, 0x0b, 0, 0, 7}, uint32(1)) // a repeated byte
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint32(MaxCompress))
	f.Fuzz(func(t *testing.T, compressed []byte, n uint32) {
		if n == 0 || n > MaxCompress {
			return
		}
		z := &Zstd{codec: newCodec(), Compressed: compressed}
		var ok bool
		decodetest.Bounded(t, len(compressed)+int(n), func() { ok = z.Decompress(int(n)) })
		if !ok {
			return
		}
		if len(z.Plain) != int(n) {
			t.Fatalf("%d bytes for %d", len(z.Plain), n)
		}
		again := &Zstd{codec: z.codec, Compressed: compress(t, z.Plain)}
		if !again.Decompress(int(n)) || !bytes.Equal(again.Plain, z.Plain) {
			t.Fatal("the plain bytes do not survive compression")
		}
	})
}

// halfBytes returns n bytes that compress to about half.
func halfBytes(n int) []byte {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32()) & 15
	}
	return b
}

func incompressible(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rand.Uint64())
	}
	return b
}

func compress(tb testing.TB, b []byte) []byte {
	tb.Helper()
	out, err := newCodec().CompressLevel(nil, b, compressLevel)
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.Clone(out)
}
