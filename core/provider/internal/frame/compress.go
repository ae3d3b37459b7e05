// SPDX-License-Identifier: MIT

package frame

import (
	"encoding/binary"
	"sync"
)

// compressLevel is zstd's fastest level.
const compressLevel = 1

// A codec is a zstd context.
type codec interface {
	CompressLevel(dst, src []byte, level int) ([]byte, error)
	DecompressInto(dst, src []byte) (int, error)
}

// A Zstd compresses or decompresses one payload at a time. It holds up to 8 MiB of memory, so take
// one with TakeZstd only while a payload needs it.
type Zstd struct {
	codec      codec
	Plain      []byte
	Compressed []byte
}

var zstds = sync.Pool{New: func() any { return &Zstd{codec: newCodec()} }}

// TakeZstd returns a Zstd that the caller owns until Free.
func TakeZstd() *Zstd { return zstds.Get().(*Zstd) }

// Free returns z to the pool. It does nothing if z is nil.
func (z *Zstd) Free() {
	if z != nil {
		zstds.Put(z)
	}
}

// SizePlain makes Plain n bytes long. The contents are undefined.
func (z *Zstd) SizePlain(n int) { z.Plain = sized(z.Plain, n) }

// SizeCompressed makes Compressed n bytes long. The contents are undefined.
func (z *Zstd) SizeCompressed(n int) { z.Compressed = sized(z.Compressed, n) }

func sized(b []byte, n int) []byte {
	if cap(b) < n {
		b = make([]byte, n)
	}
	return b[:n]
}

// Compress compresses the first n bytes of Plain into Compressed.
func (z *Zstd) Compress(n int) error {
	b, err := z.codec.CompressLevel(sized(z.Compressed, compressBound(n)), z.Plain[:n], compressLevel)
	if err == nil {
		z.Compressed = b
	}
	return err
}

// Decompress decompresses Compressed into the n bytes of Plain. It accepts any input, and returns
// false if Compressed is not exactly one zstd frame of n bytes.
func (z *Zstd) Decompress(n int) bool {
	if !isFrame(z.Compressed, uint64(n)) {
		return false
	}
	z.SizePlain(n)
	got, err := z.codec.DecompressInto(z.Plain, z.Compressed)
	return err == nil && got == n
}

// isFrame reports whether b is exactly one zstd frame (RFC 8878, section 3.1.1) that claims n
// bytes, without dictionary and checksum. The library itself would also decode data after the
// frame, and formats older than the RFC.
func isFrame(b []byte, n uint64) bool {
	const (
		magic     = 0xfd2fb528
		headerMin = 5
	)
	if len(b) < headerMin || binary.LittleEndian.Uint32(b) != magic {
		return false
	}
	descriptor := b[4]
	b = b[headerMin:]
	single := descriptor >> 5 & 1
	window := 1 - int(single)
	sizeLen := [4]int{int(single), 2, 4, 8}[descriptor>>6]
	if descriptor&0xf != 0 || sizeLen == 0 || len(b) < window+sizeLen {
		return false
	}
	b = b[window:]
	var size [8]byte
	copy(size[:], b[:sizeLen])
	claim := binary.LittleEndian.Uint64(size[:])
	if sizeLen == 2 {
		claim += 256
	}
	return claim == n && isBlocks(b[sizeLen:])
}

// isBlocks reports whether b is exactly the blocks of one frame.
func isBlocks(b []byte) bool {
	const (
		headerLen = 3
		rle       = 1
	)
	for len(b) >= headerLen {
		h := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		n := int(h >> 3)
		if h>>1&3 == rle {
			n = 1
		}
		b = b[headerLen:]
		if n > len(b) {
			return false
		}
		b = b[n:]
		if h&1 != 0 {
			return len(b) == 0
		}
	}
	return false
}
