// SPDX-License-Identifier: MIT

package stream

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
)

// newUnpackingRig is a rig whose peers may send packed payload.
func newUnpackingRig(tb testing.TB, pack Packing) *rig {
	tb.Helper()
	return newRigOf(tb, Config{Pack: pack, Unpack: true, Packed: new(atomic.Uint64)})
}

// TestPackedFramesThatBreakTheProtocol sends them as writes: the connection ends, and no byte is written.
func TestPackedFramesThatBreakTheProtocol(t *testing.T) {
	raw := thinBytes(128 << 10)
	good := pack(t, raw)
	n, m := uint64(len(raw)), uint32(len(good))
	truncated, altered := bytes.Clone(good), bytes.Clone(good)
	truncated = truncated[:len(truncated)-1]
	for i := range 16 {
		altered[16+i] ^= 0xff // where the first block says what its bits mean
	}
	legacy := append([]byte{0x27, 0xb5, 0x2f, 0xfd}, good[4:]...) // the magic of zstd 0.7
	for name, c := range map[string]struct {
		h       header
		payload []byte
	}{
		"more packed bytes than bytes": {header{length: 4, packed: 5}, make([]byte, 5)},
		"as many packed bytes":         {header{length: 4, packed: 4}, make([]byte, 4)},
		"no packed bytes":              {header{length: n}, nil},
		"too long a payload":           {header{length: maxPack + 1, packed: m}, good},
		"no zstd data":                 {header{length: n, packed: 1000}, make([]byte, 1000)},
		"too short for zstd data":      {header{length: n, packed: 3}, make([]byte, 3)},
		"altered zstd data":            {header{length: n, packed: m}, altered},
		"an end that is missing":       {header{length: n, packed: m - 1}, truncated},
		"an end that comes early":      {header{length: n, packed: m + 1}, append(bytes.Clone(good), 0)},
		"two zstd frames":              {header{length: 2 * n, packed: 2 * m}, append(bytes.Clone(good), good...)},
		"more bytes than the length":   {header{length: n - 1, packed: m}, good},
		"fewer bytes than the length":  {header{length: n + 1, packed: m}, good},
		"an old format":                {header{length: n, packed: m}, legacy},
		"a skippable frame":            {header{length: n, packed: 12}, []byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 0, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newUnpackingRig(t, PackNever)
			mem, key := r.share(maxPack + 2)
			conn := r.dial(1)[0]
			h := c.h
			h.kind, h.ticket, h.count, h.region, h.secret = kindWrite, 1, 1, key.ID, key.Secret
			h.flags |= flagZstd
			_, _ = conn.Write(frame(h, []fabric.RSeg{{Len: h.length}}, c.payload)) // the other side may close in the middle of it
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
	raw := thinBytes(minPack)
	packed := pack(t, raw)
	for name, h := range map[string]header{
		"they were not told":        {kind: kindWrite, count: 1, length: minPack, flags: flagZstd, packed: uint32(len(packed))},
		"a packed message":          {kind: kindSend, length: minPack, flags: flagZstd, packed: uint32(len(packed))},
		"a packed notice":           {kind: kindWrite, length: minPack, flags: flagZstd | flagNotice, packed: uint32(len(packed))},
		"packed bytes, but no flag": {kind: kindWrite, count: 1, length: minPack, packed: uint32(len(packed))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			_, key := r.share(minPack)
			h.region, h.secret = key.ID, key.Secret
			var segs []fabric.RSeg
			if h.count > 0 {
				segs = []fabric.RSeg{{Len: minPack}}
			}
			_, _ = r.dial(1)[0].Write(frame(h, segs, packed)) // the other side may close in the middle of it
			r.ended(fabric.ErrProtocol)
		})
	}
}

// TestPackedWritesAreTaken sends good ones from a plain socket, one with a claim that does not hold, one with a sum that differs.
func TestPackedWritesAreTaken(t *testing.T) {
	r := newUnpackingRig(t, PackNever)
	mem, key := r.share(1 << 20)
	raw := thinBytes(minPack)
	packed := pack(t, raw)
	c := r.dial(1)[0]
	for _, w := range []struct {
		name string
		at   uint64
		id   uint64
		sum  uint32
		want fabric.Errno
	}{
		{"no such region", 0, key.ID + 1, tableSum(0, raw), fabric.ErrNoKey},
		{"a sum that differs", 3 * minPack, key.ID, tableSum(0, raw) + 1, fabric.ErrCRC},
		{"a good one", 5, key.ID, tableSum(0, raw), 0},
	} {
		h := header{kind: kindWrite, flags: flagZstd | flagSum, ticket: 9, count: 2, length: minPack, region: w.id, secret: key.Secret, sum: w.sum,
			packed: uint32(len(packed))}
		send(t, c, frame(h, []fabric.RSeg{{Addr: w.at, Len: 1000}, {Addr: w.at + 2000, Len: minPack - 1000}}, packed))
		if got := ackOf(t, c); got != (ackEntry{9, w.want}) {
			t.Errorf("%s: %+v", w.name, got)
		}
	}
	if !bytes.Equal(mem[5:1005], raw[:1000]) || !bytes.Equal(mem[2005:1005+minPack], raw[1000:]) {
		t.Error("the bytes differ")
	}
	if rest := mem[2*minPack:]; bytes.Count(rest, []byte{0}) != len(rest) {
		t.Error("bytes were written whose sum differs")
	}
}

// TestPeersThatCannotUnpackGetPlainPayload dials as one that does not say it can, and as one that does.
func TestPeersThatCannotUnpackGetPlainPayload(t *testing.T) {
	for can, flags := range map[uint16]uint16{0: 0, canUnpack: flagZstd} {
		r := newUnpackingRig(t, PackSmaller)
		mem, key := r.share(minPack)
		copy(mem, thinBytes(minPack))
		r.can = can
		c := r.dial(1)[0]
		send(t, c, frame(header{kind: kindRead, ticket: 1, count: 1, length: minPack, region: key.ID, secret: key.Secret}, []fabric.RSeg{{Len: minPack}}, nil))
		h, body := readFrame(t, c)
		if h.kind != kindReply || h.flags != flags || flags == 0 && !bytes.Equal(body, mem) || flags != 0 && !bytes.Equal(body, pack(t, mem)) {
			t.Errorf("to a peer that can %#x: %+v", can, h)
		}
		if got := r.fab.cfg.Packed.Load(); got != uint64(can) {
			t.Errorf("%d were counted", got)
		}
	}
}

// FuzzUnpack gives the unpacking side any bytes and claims. The n bytes of the claim count as
// received: they have a destination already, in a region whose key the peer has shown or in a read
// of ours.
func FuzzUnpack(f *testing.F) {
	for _, raw := range [][]byte{make([]byte, 300), thinBytes(1000), randomBytes(4096), thinBytes(200 << 10), make([]byte, 1<<20)} {
		f.Add(pack(f, raw), uint32(len(raw)))
		f.Add(pack(f, raw), uint32(len(raw)-1))
	}
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x01, 0x0b, 0, 0, 7}, uint32(1)) // a repeated byte
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint32(maxPack))
	f.Fuzz(func(t *testing.T, packed []byte, n uint32) {
		if n == 0 || n > maxPack {
			return
		}
		b := &packBuffers{codec: newCodec(), packed: packed}
		var ok bool
		decodetest.Bounded(t, len(packed)+int(n), func() { ok = b.unpack(int(n)) })
		if !ok {
			return
		}
		if len(b.raw) != int(n) {
			t.Fatalf("%d bytes for %d", len(b.raw), n)
		}
		again := &packBuffers{codec: b.codec, packed: pack(t, b.raw)}
		if !again.unpack(int(n)) || !bytes.Equal(again.raw, b.raw) {
			t.Fatal("what was unpacked does not come back")
		}
	})
}
