// SPDX-License-Identifier: MIT

package rig

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A Place is where memory may be: on a device, as package device/devicetest makes them.
type Place struct {
	Name  string
	Alloc func(tb testing.TB, n int) Memory // until the case ends
}

// A Memory is a buffer somewhere. Its methods fail the case.
type Memory interface {
	Buffer() fabric.Buffer
	Write(b []byte) // all of it
	Read(b []byte)
}

// HostPlace is this process's own memory.
var HostPlace = Place{"host", func(tb testing.TB, n int) Memory {
	b, err := sys.Alloc(max(n, 1))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = sys.Free(b) })
	return hostMemory(b[:n])
}}

type hostMemory []byte

func (m hostMemory) Buffer() fabric.Buffer {
	return fabric.Buffer{Addr: sys.AddrOf(m), Len: uint64(len(m))}
}
func (m hostMemory) Write(b []byte) { copy(m, b) }
func (m hostMemory) Read(b []byte)  { copy(b, m) }

// A Stock is a registered memory with a model of what it has.
type Stock struct {
	*Host
	Memory
	Model []byte
	MR    fabric.MR
}

// Stock makes n bytes of a pattern at a place, registered at h.
func (h *Host) Stock(p Place, n int, seed uint64) *Stock {
	h.Helper()
	s := &Stock{Host: h, Memory: p.Alloc(h, n), Model: make([]byte, n)}
	mr, err := h.Dom.Reg(s.Buffer(), BothRights, NewKey())
	h.Must(err)
	h.Cleanup(func() { h.Must(mr.Close()) })
	s.MR = mr
	s.Fill(seed)
	return s
}

// noise is the pattern that stocks begin with at different places: under the race detector copying
// is quick where making it is not.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	pattern(b, 99, 0)
	return b
})

// Fill puts other bytes in for each seed.
func (s *Stock) Fill(seed uint64) {
	s.Helper()
	for done := 0; done < len(s.Model); {
		done += copy(s.Model[done:], noise()[seed*977+uint64(done>>20):])
	}
	s.Write(s.Model)
}

// Seg is a local segment.
func (s *Stock) Seg(off, n int) fabric.Seg {
	return fabric.Seg{Addr: s.Buffer().Addr + uint64(off), Len: uint64(n), MR: s.MR.Desc()}
}

// Check compares with the model.
func (s *Stock) Check(what string, args ...any) {
	s.Helper()
	got := make([]byte, len(s.Model))
	s.Read(got)
	if bytes.Equal(got, s.Model) {
		return
	}
	for i := range got {
		if got[i] != s.Model[i] {
			s.Fatalf("%s: byte %d of %d is %#x, want %#x", fmt.Sprintf(what, args...), i, len(got), got[i], s.Model[i])
		}
	}
}

// Ends makes a pair with a stock at each end, and b's as a knows it.
func Ends(r *Rig, near, far Place, n int) (a, b *Node, src, dst *Stock, to Target) {
	r.Helper()
	a, b = r.Pair(Shape{})
	src, dst = a.Stock(near, n, 1), b.Stock(far, n, 2)
	return a, b, src, dst, a.Imports(dst.MR.Raw())
}
