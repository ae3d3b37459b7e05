// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"
	"os"
	"slices"

	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// A firmware owns the objects of a NIC, and executes the commands that make and change them
// (commands.go).
type firmware struct {
	*common
	port *port

	next   uint32 // number of the next object
	pds    map[uint32]int
	umems  map[uint32]*memory.Pinned
	mkeys  memory.Regions
	uars   map[uint32]*uar
	cqs    map[uint32]*cq
	qps    map[uint32]*qp
	order  []*qp // by number, for the thread's rounds
	ranges []memory.Pinned
}

func newFirmware(c *common, p *port) firmware {
	return firmware{
		common: c, port: p, next: 0x40, pds: map[uint32]int{}, umems: map[uint32]*memory.Pinned{}, mkeys: memory.Regions{}, uars: map[uint32]*uar{},
		cqs: map[uint32]*cq{}, qps: map[uint32]*qp{},
	}
}

// number returns a new object number. All kinds of objects share the numbers, so that using one
// kind in place of another is detected.
func (f *firmware) number() uint32 {
	f.next++
	return f.next
}

// addMemory makes objects access the bytes at addr through m.
func (f *firmware) addMemory(addr, bytes uint64, m memory.Memory) {
	f.ranges = append(f.ranges, memory.Pinned{Addr: addr, N: bytes, Mem: m})
}

func (f *firmware) removeMemory(addr, bytes uint64) {
	f.ranges = slices.DeleteFunc(f.ranges, func(p memory.Pinned) bool { return p.Addr == addr && p.N == bytes })
}

func (f *firmware) memoryOf(addr, bytes uint64) memory.Memory {
	page := uint64(os.Getpagesize()) - 1
	for _, r := range f.ranges {
		// A range need not begin on a page boundary, but registrations of it do.
		if begin := r.Addr &^ page; addr >= begin && addr+bytes <= (r.Addr+r.N+page)&^page {
			return r.Mem
		}
	}
	return memory.Host{}
}

func (f *firmware) newUmem(addr, bytes uint64) (uint32, error) {
	if page := uint64(os.Getpagesize()); bytes == 0 || addr == 0 || addr%page != 0 || bytes%page != 0 || addr+bytes < addr {
		return 0, fmt.Errorf("register %d bytes at %#x with the NIC: want whole pages: %w", bytes, addr, mlx5.ErrArgument)
	}
	id := f.number()
	f.umems[id] = &memory.Pinned{Addr: addr, N: bytes, Mem: f.memoryOf(addr, bytes)}
	return id, nil
}

func (f *firmware) freeUmem(id uint32) error {
	switch u := f.umems[id]; {
	case u == nil:
		return fmt.Errorf("deregister memory %d: unknown handle: %w", id, mlx5.ErrArgument)
	case u.Users > 0:
		return fmt.Errorf("deregister memory %d: %d objects use it: %w", id, u.Users, mlx5.ErrArgument)
	}
	delete(f.umems, id)
	return nil
}

func (f *firmware) newUAR() (register uint64, page uint32, err error) {
	u := &uar{}
	if f.opts.UAR != nil {
		u.page, u.free, err = f.opts.UAR(os.Getpagesize())
	} else {
		var b []byte
		if b, err = sys.Alloc(os.Getpagesize()); err == nil {
			u.page, u.free = sys.AddrOf(b), func() error { return sys.Free(b) }
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("allocate a page of doorbells: %w", err)
	}
	u.addr = u.page + registerAt
	id := f.number()
	f.uars[id] = u
	return u.addr, id, nil
}

func (f *firmware) freeUAR(page uint32) error {
	u := f.uars[page]
	switch {
	case u == nil:
		return fmt.Errorf("free doorbells %d: unknown handle: %w", page, mlx5.ErrArgument)
	case u.users > 0:
		return fmt.Errorf("free doorbells %d: %d objects use them: %w", page, u.users, mlx5.ErrArgument)
	}
	delete(f.uars, page)
	return u.free()
}

// close frees the doorbells.
func (f *firmware) close() (errs []error) {
	for _, u := range f.uars {
		errs = append(errs, u.free())
	}
	return errs
}
