// SPDX-License-Identifier: MIT

package fabrictest

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

// hostPlace is this process's own memory.
var hostPlace = Place{"host", func(tb testing.TB, n int) Memory {
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

// A stock is a registered memory with a model of what it has.
type stock struct {
	*host
	Memory
	model []byte
	mr    fabric.MR
}

// stock makes n bytes of a pattern at a place, registered at h.
func (h *host) stock(p Place, n int, seed uint64) *stock {
	h.Helper()
	s := &stock{host: h, Memory: p.Alloc(h, n), model: make([]byte, n)}
	mr, err := h.dom.Reg(s.Buffer(), bothRights, newKey())
	h.must(err)
	h.Cleanup(func() { h.must(mr.Close()) })
	s.mr = mr
	s.fill(seed)
	return s
}

// noise is the pattern that stocks begin with at different places: under the race detector copying
// is quick where making it is not.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	pattern(b, 99, 0)
	return b
})

// fill puts other bytes in for each seed.
func (s *stock) fill(seed uint64) {
	s.Helper()
	for done := 0; done < len(s.model); {
		done += copy(s.model[done:], noise()[seed*977+uint64(done>>20):])
	}
	s.Write(s.model)
}

// seg is a local segment.
func (s *stock) seg(off, n int) fabric.Seg {
	return fabric.Seg{Addr: s.Buffer().Addr + uint64(off), Len: uint64(n), MR: s.mr.Desc()}
}

// check compares with the model.
func (s *stock) check(what string, args ...any) {
	s.Helper()
	got := make([]byte, len(s.model))
	s.Read(got)
	if bytes.Equal(got, s.model) {
		return
	}
	for i := range got {
		if got[i] != s.model[i] {
			s.Fatalf("%s: byte %d of %d is %#x, want %#x", fmt.Sprintf(what, args...), i, len(got), got[i], s.model[i])
		}
	}
}
