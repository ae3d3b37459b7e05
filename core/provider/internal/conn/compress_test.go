// SPDX-License-Identifier: MIT

package conn

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

// newUnpackingRig returns a rig whose peers may send compressed payload.
func newUnpackingRig(tb testing.TB, pack Compression) *rig {
	tb.Helper()
	return newRigOf(tb, Config{Compress: pack, Decompress: true, Compressed: new(atomic.Uint64)})
}

// TestCompressedFramesThatBreakTheProtocol sends invalid compressed writes. The connection ends,
// and no byte is written.
func TestCompressedFramesThatBreakTheProtocol(t *testing.T) {
	raw := thinBytes(128 << 10)
	good := compressed(t, raw)
	n, m := uint64(len(raw)), uint32(len(good))
	truncated, altered := bytes.Clone(good), bytes.Clone(good)
	truncated = truncated[:len(truncated)-1]
	for i := range 16 {
		altered[16+i] ^= 0xff // the bytes of the first block that describe its encoding
	}
	legacy := append([]byte{0x27, 0xb5, 0x2f, 0xfd}, good[4:]...) // the magic of zstd 0.7
	for name, c := range map[string]struct {
		h       frame.Header
		payload []byte
	}{
		"more packed bytes than bytes": {frame.Header{Length: 4, Compressed: 5}, make([]byte, 5)},
		"as many packed bytes":         {frame.Header{Length: 4, Compressed: 4}, make([]byte, 4)},
		"no packed bytes":              {frame.Header{Length: n}, nil},
		"too long a payload":           {frame.Header{Length: frame.MaxCompress + 1, Compressed: m}, good},
		"no zstd data":                 {frame.Header{Length: n, Compressed: 1000}, make([]byte, 1000)},
		"too short for zstd data":      {frame.Header{Length: n, Compressed: 3}, make([]byte, 3)},
		"altered zstd data":            {frame.Header{Length: n, Compressed: m}, altered},
		"an end that is missing":       {frame.Header{Length: n, Compressed: m - 1}, truncated},
		"an end that comes early":      {frame.Header{Length: n, Compressed: m + 1}, append(bytes.Clone(good), 0)},
		"two zstd frames":              {frame.Header{Length: 2 * n, Compressed: 2 * m}, append(bytes.Clone(good), good...)},
		"more bytes than the length":   {frame.Header{Length: n - 1, Compressed: m}, good},
		"fewer bytes than the length":  {frame.Header{Length: n + 1, Compressed: m}, good},
		"an old format":                {frame.Header{Length: n, Compressed: m}, legacy},
		"a skippable frame":            {frame.Header{Length: n, Compressed: 12}, []byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 0, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newUnpackingRig(t, CompressNever)
			mem, key := r.share(frame.MaxCompress + 2)
			conn := r.dial(1)[0]
			h := c.h
			h.Kind, h.Ticket, h.Count, h.Region, h.Secret = frame.KindWrite, 1, 1, key.ID, key.Secret
			h.Flags |= frame.FlagCompressed
			_, _ = conn.Write(encode(h, []fabric.RSeg{{Len: h.Length}}, c.payload)) // the rig may close in the middle of it
			r.ended(fabric.ErrProtocol)
			if bytes.Count(mem, []byte{0}) != len(mem) {
				t.Error("bytes were written")
			}
		})
	}
}

// ended waits for the end of the connection.
func (r *rig) ended(want error) {
	r.Helper()
	if e := r.event(fabric.EventShutdown); !errors.Is(e.Err, want) {
		r.Errorf("connection ended by %v, want %v", e.Err, want)
	}
}

func TestPackedPayloadOfPeersThatMayNotSendIt(t *testing.T) {
	raw := thinBytes(minCompress)
	packed := compressed(t, raw)
	for name, h := range map[string]frame.Header{
		"they were not allowed":     {Kind: frame.KindWrite, Count: 1, Length: minCompress, Flags: frame.FlagCompressed, Compressed: uint32(len(packed))},
		"a packed message":          {Kind: frame.KindSend, Length: minCompress, Flags: frame.FlagCompressed, Compressed: uint32(len(packed))},
		"a packed notice":           {Kind: frame.KindWrite, Length: minCompress, Flags: frame.FlagCompressed | frame.FlagNotice, Compressed: uint32(len(packed))},
		"packed bytes, but no flag": {Kind: frame.KindWrite, Count: 1, Length: minCompress, Compressed: uint32(len(packed))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			_, key := r.share(minCompress)
			h.Region, h.Secret = key.ID, key.Secret
			var segs []fabric.RSeg
			if h.Count > 0 {
				segs = []fabric.RSeg{{Len: minCompress}}
			}
			_, _ = r.dial(1)[0].Write(encode(h, segs, packed)) // the rig may close in the middle of it
			r.ended(fabric.ErrProtocol)
		})
	}
}

// TestCompressedWritesAreTaken sends valid compressed writes from a plain socket, one with an
// invalid key, and one with a wrong checksum.
func TestCompressedWritesAreTaken(t *testing.T) {
	r := newUnpackingRig(t, CompressNever)
	mem, key := r.share(1 << 20)
	raw := thinBytes(minCompress)
	packed := compressed(t, raw)
	c := r.dial(1)[0]
	for _, w := range []struct {
		name string
		at   uint64
		id   uint64
		sum  uint32
		want fabric.Errno
	}{
		{"no such region", 0, key.ID + 1, frame.Checksum(0, raw), fabric.ErrNoKey},
		{"a sum that differs", 3 * minCompress, key.ID, frame.Checksum(0, raw) + 1, fabric.ErrCRC},
		{"a good one", 5, key.ID, frame.Checksum(0, raw), 0},
	} {
		h := frame.Header{Kind: frame.KindWrite, Flags: frame.FlagCompressed | frame.FlagChecksum, Ticket: 9, Count: 2, Length: minCompress, Region: w.id, Secret: key.Secret, Checksum: w.sum,
			Compressed: uint32(len(packed))}
		send(t, c, encode(h, []fabric.RSeg{{Addr: w.at, Len: 1000}, {Addr: w.at + 2000, Len: minCompress - 1000}}, packed))
		if got := ackOf(t, c); got != (frame.Ack{Ticket: 9, Errno: w.want}) {
			t.Errorf("%s: %+v", w.name, got)
		}
	}
	if !bytes.Equal(mem[5:1005], raw[:1000]) || !bytes.Equal(mem[2005:1005+minCompress], raw[1000:]) {
		t.Error("the bytes differ")
	}
	if rest := mem[2*minCompress:]; bytes.Count(rest, []byte{0}) != len(rest) {
		t.Error("bytes were written whose sum differs")
	}
}

// TestPeersThatCannotDecompressGetPlainPayload dials once without and once with the feature that
// announces decompression.
func TestPeersThatCannotDecompressGetPlainPayload(t *testing.T) {
	for can, flags := range map[uint16]uint16{0: 0, frame.FeatureDecompress: frame.FlagCompressed} {
		r := newUnpackingRig(t, CompressSmaller)
		mem, key := r.share(minCompress)
		copy(mem, thinBytes(minCompress))
		r.can = can
		c := r.dial(1)[0]
		send(t, c, encode(frame.Header{Kind: frame.KindRead, Ticket: 1, Count: 1, Length: minCompress, Region: key.ID, Secret: key.Secret}, []fabric.RSeg{{Len: minCompress}}, nil))
		h, body := readFrame(t, c)
		if h.Kind != frame.KindReply || h.Flags != flags || flags == 0 && !bytes.Equal(body, mem) || flags != 0 && !bytes.Equal(body, compressed(t, mem)) {
			t.Errorf("to a peer that can %#x: %+v", can, h)
		}
		if got := r.fab.cfg.Compressed.Load(); got != uint64(can) {
			t.Errorf("%d were counted", got)
		}
	}
}

// minCompress is the smallest payload in bytes that a stream compresses.
const minCompress = 64 << 10

// thinBytes returns n bytes that compress to about half.
func thinBytes(n int) []byte {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32()) & 15
	}
	return b
}

func compressed(tb testing.TB, b []byte) []byte {
	tb.Helper()
	z := frame.TakeZstd()
	defer z.Free()
	z.SizePlain(len(b))
	copy(z.Plain, b)
	if err := z.Compress(len(b)); err != nil {
		tb.Fatal(err)
	}
	return bytes.Clone(z.Compressed)
}
