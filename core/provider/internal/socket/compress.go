// SPDX-License-Identifier: MIT

package socket

import (
	"net"
	"sync/atomic"
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/frame"
)

// Compression of payload. The writer of a stream compresses the payload of writes and replies if
// the bytes get through sooner. It compresses the first 64 KiB and estimates the rest: the time
// that it takes, against the time that it saves on a stream as fast as measured. After each attempt
// in vain it lets twice as many payloads pass before the next. Submitters never compress.
//
// The payload is copied first, so it does not matter if its owner changes it meanwhile.

const (
	// minCompress is the least payload that is compressed.
	minCompress = 64 << 10
	// probeLen is the first part, by which the rest is estimated. On 2 cores, level 1 takes 33 µs
	// (random bytes) to 88 µs for it, and 0.14 ms (zeros) to 1.1 ms for 1 MiB; decompressing 1 MiB
	// takes 0.02 to 0.44 ms.
	probeLen = 64 << 10
	// compressRatio is how much of a payload may be left for compression to pay.
	compressRatio = 0.8
	// compressCare is how many times its own time compression must save: the peer decompresses and
	// copies.
	compressCare = 2
	// maxPause bounds how many payloads pass before the next try.
	maxPause = 64
)

// pays reports whether n bytes, compressed to m, get through sooner if compression takes cost and
// the wire takes wire for a byte, in ns. 0 is not known.
func pays(n, m int, cost, wire float64) bool {
	return smaller(n, m) && compressCare*cost*float64(n) < wire*float64(n-m)
}

func smaller(n, m int) bool { return float64(m) <= compressRatio*float64(n) }

// A smooth is an average in which the last value counts for a quarter.
type smooth float64

func (s *smooth) add(v float64) {
	if *s == 0 {
		*s = smooth(v)
	} else {
		*s += (smooth(v) - *s) / 4
	}
}

// A Compressor compresses the payload of one stream.
type Compressor struct {
	always bool
	rate   func() float64
	count  *atomic.Uint64 // may be nil

	cost, wire  smooth // ns for each byte
	skip, pause int    // payloads that pass, now and after the next try in vain
	buf         *frame.Zstd
	src, dst    []sys.Iovec // scratch
}

// A Compression says how payload is compressed.
type Compression struct {
	Always bool                   // whenever it becomes smaller, whatever the cost: for tests
	Count  *atomic.Uint64         // if set, counts the frames that were sent compressed
	Rate   func(net.Conn) float64 // if set, returns the measured bytes/s of a socket, or 0
}

// NewCompressor makes a compressor for a stream over conn.
func NewCompressor(c Compression, conn net.Conn) *Compressor {
	k := &Compressor{always: c.Always, count: c.Count, rate: func() float64 { return 0 }}
	if c.Rate != nil {
		k.rate = func() float64 { return c.Rate(conn) }
	}
	return k
}

// due reports whether to try to compress the job, which is then the last of its batch. It counts
// what passes.
func (k *Compressor) due(j *Job) bool { return k != nil && k.tries(j) }

func (k *Compressor) tries(j *Job) bool {
	if j.H.Kind != frame.KindWrite && j.H.Kind != frame.KindReply || j.H.Flags&frame.FlagNotice != 0 || j.H.Length < minCompress || j.H.Length > frame.MaxCompress {
		return false
	}
	if k.skip > 0 {
		k.skip--
		return false
	}
	return true
}

// compress makes the job one of compressed payload if that pays.
func (k *Compressor) compress(j *Job) {
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
	j.H.Flags = j.H.Flags&^frame.FlagTrailer | frame.FlagCompressed
	j.H.Compressed = uint32(len(k.buf.Compressed))
	if j.H.Flags&frame.FlagChecksum != 0 {
		j.H.Checksum = frame.Checksum(0, k.buf.Plain)
	}
	if k.count != nil {
		k.count.Add(1)
	}
}

// try compresses the first part, and the rest if that pays. It leaves memory that is gone to the
// system call that sends it.
func (k *Compressor) try(j *Job) bool {
	b, n := k.buf, int(j.H.Length)
	b.SizePlain(n)
	if !k.gather(j) || !k.part(probeLen) || n > probeLen && !k.part(n) {
		return false
	}
	return true
}

// part compresses the first n bytes and reports whether that pays.
func (k *Compressor) part(n int) bool {
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
func (k *Compressor) gather(j *Job) bool {
	if j.Reply != nil {
		k.src = append(k.src[:0], j.Reply.Iovecs()...)
	} else {
		k.src = AppendLocal(k.src[:0], j.Op, j.H.Length)
	}
	k.dst = append(k.dst[:0], sys.Iovec{Addr: sys.AddrOf(k.buf.Plain), Len: j.H.Length})
	n, err := vm.CopySelf(k.dst, k.src)
	if cap(k.src) > keepEntries {
		k.src = nil
	}
	return err == nil && n == len(k.buf.Plain)
}

// release frees the buffers of a batch that was sent.
func (k *Compressor) release() {
	if k != nil && k.buf != nil {
		k.buf.Free()
		k.buf = nil
	}
}

// addCompressed appends the compressed payload to the batch.
func (p *pump) addCompressed() {
	b := p.compress.buf.Compressed
	p.add(sys.AddrOf(b), uint64(len(b)))
}
