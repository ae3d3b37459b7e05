// SPDX-License-Identifier: MIT

package stream

import (
	"net"
	"sync/atomic"
	"time"

	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// Payload that is packed. With Config.Pack, and to a peer that can unpack it, the link's writer makes the payload of writes and replies
// smaller where the bytes get through sooner for it: it packs the first 64 KiB, compares the time that all of it takes with the time that it
// saves on a wire as fast as measured, and goes on or leaves it. After each time that it left it, it lets twice as many pass before it tries
// again. Submitters never pack.
//
// The payload is copied first. Memory that its owner changes in between is so no matter of the library's.

const (
	// minCompress is the least payload that is compressed.
	minCompress = 64 << 10
	// probeLen is the first part of it, by which the rest is judged. On 2 cores, level 1 takes 33 µs (random bytes) to 88 µs for it, and
	// 0.14 ms (zeros) to 1.1 ms for 1 MiB; unpacking 1 MiB takes 0.02 to 0.44 ms.
	probeLen = 64 << 10
	// packRatio is how much may be left for packing to be worth the trouble.
	packRatio = 0.8
	// packCare is how many times its own time packing has to save: the peer unpacks and copies.
	packCare = 2
	// maxPause bounds how many payloads pass before the next try.
	maxPause = 64
)

// pays reports whether n bytes, packed to m, get through sooner where packing takes cost and the wire takes wire for a byte, in ns; 0 is
// not known.
func pays(n, m int, cost, wire float64) bool {
	return smaller(n, m) && packCare*cost*float64(n) < wire*float64(n-m)
}

func smaller(n, m int) bool { return float64(m) <= packRatio*float64(n) }

// A smooth is an average in which the last value counts for a quarter.
type smooth float64

func (s *smooth) add(v float64) {
	if *s == 0 {
		*s = smooth(v)
	} else {
		*s += (smooth(v) - *s) / 4
	}
}

// A packer is the part of a pump that packs.
type packer struct {
	always bool
	rate   func() float64
	count  *atomic.Uint64 // may be nil

	cost, wire  smooth // ns for each byte
	skip, pause int    // payloads that pass, now and after the next try in vain
	buf         *frame.Zstd
	src, dst    []sys.Iovec // scratch
}

// newPacker is nil if nothing is to be packed.
func newPacker(c *Config, conn net.Conn) *packer {
	if c.Pack == PackNever {
		return nil
	}
	k := &packer{always: c.Pack == PackSmaller, count: c.Packed, rate: func() float64 { return 0 }}
	if c.Rate != nil {
		k.rate = func() float64 { return c.Rate(conn) }
	}
	return k
}

// due reports whether the job, which is then the batch's last, is to be packed. It counts what passes.
func (k *packer) due(j *job) bool { return k != nil && k.tries(j) }

func (k *packer) tries(j *job) bool {
	if j.h.Kind != frame.KindWrite && j.h.Kind != frame.KindReply || j.h.Flags&frame.FlagNotice != 0 || j.h.Length < minCompress || j.h.Length > frame.MaxCompress {
		return false
	}
	if k.skip > 0 {
		k.skip--
		return false
	}
	return true
}

// pack makes the job one of packed payload if that pays.
func (k *packer) pack(j *job) {
	if rate := k.rate(); rate > 0 {
		k.wire.add(1e9 / rate)
	}
	if k.wire == 0 && !k.always {
		return // what passes now is the measure
	}
	k.buf = frame.TakeZstd()
	if !k.try(j) {
		k.release()
		k.pause = min(max(2*k.pause, 1), maxPause)
		k.skip = k.pause
		return
	}
	k.pause = 0
	j.h.Flags = j.h.Flags&^frame.FlagTrailer | frame.FlagCompressed
	j.h.Compressed = uint32(len(k.buf.Compressed))
	if j.h.Flags&frame.FlagChecksum != 0 {
		j.h.Checksum = frame.Checksum(0, k.buf.Plain)
	}
	if k.count != nil {
		k.count.Add(1)
	}
}

// try packs the first part, and the rest if that pays. Memory that is gone is left to the system call that sends it.
func (k *packer) try(j *job) bool {
	b, n := k.buf, int(j.h.Length)
	b.SizePlain(n)
	if !k.gather(j) || !k.squeeze(probeLen) || n > probeLen && !k.squeeze(n) {
		return false
	}
	return true
}

// squeeze packs the first n bytes and reports whether that pays.
func (k *packer) squeeze(n int) bool {
	b := k.buf
	start := time.Now()
	if err := b.Compress(n); err != nil {
		return false
	}
	k.cost.add(float64(time.Since(start)) / float64(n))
	if k.always {
		return smaller(n, len(b.Compressed))
	}
	return pays(n, len(b.Compressed), float64(k.cost), float64(k.wire))
}

// gather copies the payload.
func (k *packer) gather(j *job) bool {
	if j.reply != nil {
		k.src = append(k.src[:0], j.reply.iov...)
	} else {
		k.src = appendLocal(k.src[:0], &j.slot.op, j.h.Length)
	}
	k.dst = append(k.dst[:0], sys.Iovec{Addr: sys.AddrOf(k.buf.Plain), Len: j.h.Length})
	n, err := sys.CopySelf(k.dst, k.src)
	if cap(k.src) > keepEntries {
		k.src = nil
	}
	return err == nil && n == len(k.buf.Plain)
}

// release lets go of the buffers of a batch that was sent.
func (k *packer) release() {
	if k != nil && k.buf != nil {
		k.buf.Free()
		k.buf = nil
	}
}

// addPacked appends the payload that was packed to the batch.
func (p *pump) addPacked() {
	b := p.pack.buf.Compressed
	p.add(sys.AddrOf(b), uint64(len(b)))
}
