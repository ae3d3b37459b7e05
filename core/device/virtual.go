// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
)

// Virtual is an optional feature of a device: addresses and memory are created separately, and
// memory is exported to other processes as a descriptor.
type Virtual struct {
	dev         *Device
	granularity uint64
}

// Virtual returns virtual memory management of the device. It returns an error that wraps
// errors.ErrUnsupported if the device has none, and another error if the driver failed to answer.
func (d *Device) Virtual() (*Virtual, error) {
	if !d.VMM || !d.VMMFD {
		return nil, fmt.Errorf("virtual memory management on %s: %w", d, errors.ErrUnsupported)
	}
	n, err := d.gpu.Virtual().Granularity()
	if err == nil && (n == 0 || bits.OnesCount64(n) != 1) {
		err = fmt.Errorf("the driver's granularity is %d: %w", n, ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("virtual memory management on %s: %w", d, err)
	}
	return &Virtual{d, n}, nil
}

// Granularity returns the unit of sizes, a power of two.
func (v *Virtual) Granularity() uint64 { return v.granularity }

// Round rounds n up to the granularity.
func (v *Virtual) Round(n uint64) uint64 { return (n + v.granularity - 1) &^ (v.granularity - 1) }

// A Range is a range of reserved addresses. Unmap everything in it before you close it.
type Range struct {
	handle
	addr, bytes uint64
}

// Addr returns its first address.
func (r *Range) Addr() uint64 { return r.addr }

// Bytes returns its size.
func (r *Range) Bytes() uint64 { return r.bytes }

// Reserve reserves addresses for n bytes, rounded up, aligned to align or to the granularity,
// without memory.
func (v *Virtual) Reserve(n, align uint64) (*Range, error) {
	d, n := v.dev, v.Round(n)
	addr, err := d.gpu.Virtual().Reserve(n, max(align, v.granularity))
	if err != nil {
		return nil, fmt.Errorf("reserve addresses for %d bytes on %s: %w", n, d, err)
	}
	r := &Range{addr: addr, bytes: n}
	r.init(d, fmt.Sprintf("addresses for %d bytes", n), func() error { return d.gpu.Virtual().Unreserve(addr, n) })
	return r, nil
}

// Physical is memory without an address. If it is closed while it is mapped, it is freed after the
// last unmap.
type Physical struct {
	handle
	gpu, bytes uint64
}

// Bytes returns its size; 0 for imported memory.
func (p *Physical) Bytes() uint64 { return p.bytes }

// Create allocates n bytes, rounded up.
func (v *Virtual) Create(n uint64) (*Physical, error) {
	n = v.Round(n)
	h, err := v.dev.gpu.Virtual().Create(n)
	if err != nil {
		return nil, fmt.Errorf("create %d bytes of memory on %s: %w", n, v.dev, err)
	}
	return v.physical(h, n), nil
}

func (v *Virtual) physical(h, n uint64) *Physical {
	p := &Physical{gpu: h, bytes: n}
	p.init(v.dev, fmt.Sprintf("%d bytes of virtual memory", n), func() error { return v.dev.gpu.Virtual().Release(h) })
	return p
}

// Export returns a file whose descriptor names p to other processes.
func (p *Physical) Export() (*os.File, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	fd, err := p.dev.gpu.Virtual().Export(p.gpu)
	if err != nil {
		return nil, fmt.Errorf("export memory of %s: %w", p.dev, err)
	}
	return os.NewFile(uintptr(fd), "device memory"), nil
}

// Import imports the memory of another process's file, which the caller keeps.
func (v *Virtual) Import(f *os.File) (*Physical, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("import memory: %w", err)
	}
	var h uint64
	err2 := raw.Control(func(fd uintptr) { h, err = v.dev.gpu.Virtual().Import(int(fd)) })
	if err = errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("import memory for %s: %w", v.dev, err)
	}
	return v.physical(h, 0), nil
}

// A Mapping is memory mapped at addresses.
type Mapping struct{ handle }

// Map maps n bytes of p at offset in r. The devices of r and of others may read and write it.
func (r *Range) Map(offset, n uint64, p *Physical, others ...*Device) (*Mapping, error) {
	if err := errors.Join(r.check(), p.check()); err != nil {
		return nil, err
	}
	if offset > r.bytes || n > r.bytes-offset {
		return nil, fmt.Errorf("map %d bytes at offset %d of %d bytes: %w", n, offset, r.bytes, ErrInvalid)
	}
	d, at := r.dev, r.addr+offset
	ids := []int32{int32(d.Ordinal)}
	for _, o := range others {
		if o != d {
			ids = append(ids, int32(o.Ordinal))
		}
	}
	if err := d.gpu.Virtual().Map(at, n, p.gpu); err != nil {
		return nil, fmt.Errorf("map %d bytes at %#x on %s: %w", n, at, d, err)
	}
	if err := d.gpu.Virtual().SetAccess(at, n, ids); err != nil {
		return nil, errors.Join(fmt.Errorf("give devices %v access to %d bytes at %#x: %w", ids, n, at, err), d.gpu.Virtual().Unmap(at, n))
	}
	m := new(Mapping)
	m.init(d, fmt.Sprintf("a mapping of %d bytes", n), func() error { return d.gpu.Virtual().Unmap(at, n) })
	return m, nil
}
