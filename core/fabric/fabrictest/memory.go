// SPDX-License-Identifier: MIT

package fabrictest

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A memory is a mapped buffer.
type memory struct {
	b    []byte
	addr uint64
}

// alloc maps n bytes until the case ends.
func (r *rig) alloc(n int) memory {
	r.Helper()
	b, err := sys.Alloc(max(n, 1))
	r.must(err)
	r.Cleanup(func() { _ = sys.Free(b) })
	return memory{b[:n], sys.AddrOf(b)}
}

// patterned is alloc filled with the pattern of seed.
func (r *rig) patterned(n int, seed uint64) memory {
	r.Helper()
	m := r.alloc(n)
	m.fill(seed)
	return m
}

// at is the part of n bytes at offset off.
func (m memory) at(off, n int) memory { return memory{m.b[off : off+n], m.addr + uint64(off)} }

// seg is all of it as a segment.
func (m memory) seg() fabric.Seg { return fabric.Seg{Addr: m.addr, Len: uint64(len(m.b))} }

// word is what the pattern of seed has in its i-th eight bytes.
func word(seed, i uint64) uint64 {
	hi, lo := bits.Mul64(i+0x9e3779b97f4a7c15, seed*2+0xd1342543de82ef95)
	return hi ^ lo
}

// fill writes the pattern of seed.
func (m memory) fill(seed uint64) { pattern(m.b, seed, 0) }

// pattern writes what a buffer with the pattern of seed has from offset off, a multiple of 8, on.
// It writes whole pages, since the race detector makes every access by itself costly: the suite
// took a third longer.
func pattern(b []byte, seed, off uint64) {
	var page [pageSize]byte
	for n := 0; n < len(b); n += pageSize {
		part := b[n:min(n+pageSize, len(b))]
		words(&page, len(part), seed, off+uint64(n))
		copy(part, page[:])
	}
}

const pageSize = 4096

// words writes as many words of the pattern as n bytes need. The caller has the page to
// itself: the race detector need not look.
//
//go:norace
func words(page *[pageSize]byte, n int, seed, off uint64) {
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(page[i:], word(seed, (off+uint64(i))/8))
	}
}

// has fails the case unless m holds the pattern of seed from offset off, a multiple of 8, on.
func (r *rig) has(m memory, seed, off uint64) {
	r.Helper()
	if i := differs(m.b, seed, off); i >= 0 {
		r.Fatalf("byte %d of %d differs from pattern %d at offset %d", i, len(m.b), seed, off)
	}
}

// differs returns the index of the first byte that is not the pattern's, or -1. It compares whole
// pages, since the race detector makes every access by itself costly.
func differs(b []byte, seed, off uint64) int {
	var page [pageSize]byte
	for n := 0; n < len(b); n += pageSize {
		want := page[:min(pageSize, len(b)-n)]
		words(&page, len(want), seed, off+uint64(n))
		if !bytes.Equal(b[n:n+len(want)], want) {
			for j := range want {
				if b[n+j] != want[j] {
					return n + j
				}
			}
		}
	}
	return -1
}

// zero fails the case unless m is untouched.
func (r *rig) zero(m memory) {
	r.Helper()
	var page [4096]byte
	for n := 0; n < len(m.b); n += len(page) {
		part := m.b[n:min(n+len(page), len(m.b))]
		if !bytes.Equal(part, page[:len(part)]) {
			at := bytes.IndexFunc(part, func(c rune) bool { return c != 0 })
			r.Fatalf("byte %d of %d was written: %#x", n+at, len(m.b), part[at])
		}
	}
}

var regionIDs atomic.Uint64

// newKey makes a key with an id that no other case uses.
func newKey() fabric.RegionKey {
	k := fabric.RegionKey{ID: regionIDs.Add(1)}
	_, _ = rand.Read(k.Secret[:]) // never fails
	return k
}

const bothRights = fabric.AccessRemoteRead | fabric.AccessRemoteWrite

// reg registers m at h.
func (h *host) reg(m memory, access fabric.Access) fabric.MR {
	h.Helper()
	mr, err := h.dom.Reg(fabric.Buffer{Addr: m.addr, Len: uint64(len(m.b))}, access, newKey())
	h.must(err)
	h.Cleanup(func() { h.must(mr.Close()) })
	return mr
}

// a target is a peer's region as h imported it.
type target struct{ key, base uint64 }

// imports makes a region of raw known at h.
func (h *host) imports(raw []byte) target {
	h.Helper()
	rm, err := h.dom.Import(raw)
	h.must(err)
	h.Cleanup(func() { h.must(rm.Close()) })
	return target{rm.Key(), rm.Base()}
}

// at is a segment of the region.
func (t target) at(off, n uint64) fabric.RSeg {
	return fabric.RSeg{Addr: t.base + off, Len: n, Key: t.key}
}
