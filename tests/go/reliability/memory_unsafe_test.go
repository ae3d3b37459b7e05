// SPDX-License-Identifier: MIT

package reliability

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

const block = 4096

// A seed with the bit thin makes bytes that can be compressed to less than a third.
const (
	thin     = 1 << 32
	thinPart = block / 4
)

// A memory is mapped outside of Go's heap, so that an address stays what it is.
type memory []byte

func newMemory(size int) (memory, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func (m memory) addr() uint64 { return uint64(uintptr(unsafe.Pointer(&m[0]))) }

// free leaves a hole that nothing else of the process is mapped into.
func (m memory) free() error {
	return errors.Join(unix.Madvise(m, unix.MADV_DONTNEED), unix.Mprotect(m, unix.PROT_NONE))
}

// mapAt maps zeros at an address.
func mapAt(addr uint64, size int) (memory, error) {
	const kind = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_FIXED
	at := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	p, err := unix.MmapPtr(-1, 0, at, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, kind)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// fillBlock makes b the block with this number of a pattern: no two blocks of any pattern are
// alike. With a thin seed, all of b repeats its first part.
func fillBlock(b []byte, seed, number uint64) {
	x := seed*0x9e3779b97f4a7c15 ^ number*0xbf58476d1ce4e5b9 | 1
	for i := 0; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x+uint64(i))
		if seed&thin != 0 && i >= thinPart {
			copy(b[i:i+8], b[i-thinPart:])
		}
	}
}
