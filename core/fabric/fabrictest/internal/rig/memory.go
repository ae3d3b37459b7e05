// SPDX-License-Identifier: MIT

package rig

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A Buffer is a mapped buffer.
type Buffer struct {
	B    []byte
	Addr uint64
}

// Alloc maps n bytes until the case ends.
func (r *Rig) Alloc(n int) Buffer {
	r.Helper()
	b, err := sys.Alloc(max(n, 1))
	r.Must(err)
	r.Cleanup(func() { _ = sys.Free(b) })
	return Buffer{b[:n], sys.AddrOf(b)}
}

// Patterned is Alloc filled with the pattern of seed.
func (r *Rig) Patterned(n int, seed uint64) Buffer {
	r.Helper()
	m := r.Alloc(n)
	m.Fill(seed)
	return m
}

// At is the part of n bytes at offset off.
func (m Buffer) At(off, n int) Buffer { return Buffer{m.B[off : off+n], m.Addr + uint64(off)} }

// Seg is all of it as a segment.
func (m Buffer) Seg() fabric.Seg { return fabric.Seg{Addr: m.Addr, Len: uint64(len(m.B))} }

// Word is what the pattern of seed has in its i-th eight bytes.
func Word(seed, i uint64) uint64 {
	hi, lo := bits.Mul64(i+0x9e3779b97f4a7c15, seed*2+0xd1342543de82ef95)
	return hi ^ lo
}

// Fill writes the pattern of seed.
func (m Buffer) Fill(seed uint64) { pattern(m.B, seed, 0) }

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
		binary.LittleEndian.PutUint64(page[i:], Word(seed, (off+uint64(i))/8))
	}
}

// Has fails the case unless m holds the pattern of seed from offset off, a multiple of 8, on.
func (r *Rig) Has(m Buffer, seed, off uint64) {
	r.Helper()
	if i := Differs(m.B, seed, off); i >= 0 {
		r.Fatalf("byte %d of %d differs from pattern %d at offset %d", i, len(m.B), seed, off)
	}
}

// Differs returns the index of the first byte that is not the pattern's, or -1. It compares whole
// pages, since the race detector makes every access by itself costly.
func Differs(b []byte, seed, off uint64) int {
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

// Zero fails the case unless m is untouched.
func (r *Rig) Zero(m Buffer) {
	r.Helper()
	var page [4096]byte
	for n := 0; n < len(m.B); n += len(page) {
		part := m.B[n:min(n+len(page), len(m.B))]
		if !bytes.Equal(part, page[:len(part)]) {
			at := bytes.IndexFunc(part, func(c rune) bool { return c != 0 })
			r.Fatalf("byte %d of %d was written: %#x", n+at, len(m.B), part[at])
		}
	}
}

var regionIDs atomic.Uint64

// NewKey makes a key with an id that no other case uses.
func NewKey() fabric.RegionKey {
	k := fabric.RegionKey{ID: regionIDs.Add(1)}
	_, _ = rand.Read(k.Secret[:]) // never fails
	return k
}

const BothRights = fabric.AccessRemoteRead | fabric.AccessRemoteWrite

// Reg registers m at h.
func (h *Host) Reg(m Buffer, access fabric.Access) fabric.MR {
	h.Helper()
	mr, err := h.Dom.Reg(fabric.Buffer{Addr: m.Addr, Len: uint64(len(m.B))}, access, NewKey())
	h.Must(err)
	h.Cleanup(func() { h.Must(mr.Close()) })
	return mr
}

// A Target is a peer's region as h imported it.
type Target struct{ Key, Base uint64 }

// Imports makes a region of raw known at h.
func (h *Host) Imports(raw []byte) Target {
	h.Helper()
	rm, err := h.Dom.Import(raw)
	h.Must(err)
	h.Cleanup(func() { h.Must(rm.Close()) })
	return Target{rm.Key(), rm.Base()}
}

// At is a segment of the region.
func (t Target) At(off, n uint64) fabric.RSeg {
	return fabric.RSeg{Addr: t.Base + off, Len: n, Key: t.Key}
}

// Cut splits m into segments of n, n+1, n+2... bytes, with an empty one here and there, and a long
// last one where the provider's limit is reached.
func (r *Rig) Cut(m Buffer, n int) (first fabric.Seg, more []fabric.Seg) {
	limit := r.Info.Limits.SegLimit
	for i := 0; len(m.B) > 0; i++ {
		k := min(n+i%7, len(m.B))
		if i%5 == 4 && len(more)+1 < limit {
			more = append(more, fabric.Seg{})
		}
		if len(more)+1 == limit {
			k = len(m.B)
		}
		more = append(more, m.At(0, k).Seg())
		m = m.At(k, len(m.B)-k)
	}
	return more[0], more[1:]
}

// CutRemote is Cut for the first n bytes of a region.
func (r *Rig) CutRemote(t Target, n, step int) (first fabric.RSeg, more []fabric.RSeg) {
	limit := r.Info.Limits.RSegLimit
	for i, off := 0, 0; off < n; i++ {
		k := min(step+i%11, n-off)
		if len(more)+1 == limit {
			k = n - off
		}
		more = append(more, t.At(uint64(off), uint64(k)))
		if i%6 == 3 && len(more)+1 < limit {
			more = append(more, t.At(uint64(off), 0))
		}
		off += k
	}
	return more[0], more[1:]
}
