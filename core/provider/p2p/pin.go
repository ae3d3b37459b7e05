// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"mori/core/device"
	"mori/core/provider/internal/local"
)

// pins are the ranges of host memory that this process has pinned for copies, sorted by address.
// Drivers refuse to pin a byte twice, and regions may overlap. So each byte belongs to at most one
// range, which exists as long as a region needs it.
var pins struct {
	sync.Mutex
	all []*pinnedRange
}

type pinnedRange struct {
	vendor device.Vendor
	lo, hi uint64
	memory *device.HostMemory
	users  int
}

// A pinned is host memory that a vendor's devices access at its host address plus shift.
type pinned struct {
	shift  uint64
	ranges []*pinnedRange // nil: the program has pinned it, and unpins it
}

// pin gives devices of d's vendor access to n bytes of host memory. It pins whole pages, because
// drivers also refuse two ranges that share a page.
func pin(d *device.Device, addr, n uint64) (*pinned, error) {
	pins.Lock()
	defer pins.Unlock()
	p := &pinned{}
	if at, err := device.Lookup(addr); err == nil && pinnedByOthers(d, at, addr, n) {
		p.shift = at.DeviceAddr - addr
		return p, nil
	}
	page := uint64(os.Getpagesize())
	end := (addr + n + page - 1) &^ (page - 1)
	for next := addr &^ (page - 1); next < end; {
		r, err := rangeAt(d, next, end)
		if err == nil && len(p.ranges) > 0 && r.shift() != p.shift {
			r.users++
			p.ranges = append(p.ranges, r)
			err = fmt.Errorf("the device maps parts of it at different offsets: %w", device.ErrInvalid)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("pin %d bytes at %#x: %w", n, addr, err), p.unpin())
		}
		r.users++
		p.ranges, p.shift, next = append(p.ranges, r), r.shift(), r.hi
	}
	return p, nil
}

// pinnedByOthers reports whether the program, and not this package, has pinned the memory, as
// PyTorch does.
func pinnedByOthers(d *device.Device, at device.Pointer, addr, n uint64) bool {
	if at.Kind != device.Host || at.DeviceAddr == 0 || at.Device != nil && at.Device.Vendor != d.Vendor || at.Base == 0 || addr < at.Base || addr+n > at.Base+at.Bytes {
		return false
	}
	return !slices.ContainsFunc(pins.all, func(r *pinnedRange) bool { return addr < r.hi && r.lo < addr+n })
}

func (r *pinnedRange) shift() uint64 { return r.memory.DeviceAddr() - r.lo }

// rangeAt returns the range that contains addr. If there is none, it pins one that extends to end
// or to the next range. The caller holds the lock of pins.
func rangeAt(d *device.Device, addr, end uint64) (*pinnedRange, error) {
	i := 0
	for ; i < len(pins.all); i++ {
		r := pins.all[i]
		if r.vendor != d.Vendor || r.hi <= addr {
			continue
		}
		if r.lo <= addr {
			return r, nil
		}
		end = min(end, r.lo)
		break
	}
	m, err := d.RegisterHost(addr, end-addr)
	if err != nil {
		return nil, err
	}
	r := &pinnedRange{vendor: d.Vendor, lo: addr, hi: end, memory: m}
	at, _ := slices.BinarySearchFunc(pins.all, addr, func(r *pinnedRange, addr uint64) int {
		if r.lo < addr {
			return -1
		}
		return 1
	})
	pins.all = slices.Insert(pins.all, at, r)
	return r, nil
}

// release ends the use of pinned memory by a region.
func (p *pinned) release() error {
	pins.Lock()
	defer pins.Unlock()
	return p.unpin()
}

// unpin is release with pins locked.
func (p *pinned) unpin() error {
	var errs []error
	for _, r := range p.ranges {
		if r.users--; r.users > 0 {
			continue
		}
		pins.all = slices.DeleteFunc(pins.all, func(other *pinnedRange) bool { return other == r })
		errs = append(errs, r.memory.Close())
	}
	p.ranges = nil
	return errors.Join(errs...)
}

// A hostPin is a local region of host memory, pinned for devices.
type hostPin struct {
	use    local.Gate
	vendor device.Vendor
	pinned *pinned
	err    error // why the region cannot be pinned
}

// Use returns the gate of the copies that use the pin; see pathbase.Registration.
func (p *hostPin) Use() *local.Gate { return &p.use }

// Close unpins the memory.
func (p *hostPin) Close() error {
	if p.pinned == nil {
		return nil
	}
	return p.pinned.release()
}
