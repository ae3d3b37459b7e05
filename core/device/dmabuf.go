// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
)

// ExportDmaBuf makes a dma-buf of n bytes of memory at addr, by which NICs are shown it: a
// descriptor, which the caller closes, and where in it the bytes begin. There may be more in it,
// before and after. The importer keeps the memory; the addresses must be what they are for as
// long as it is used.
//
// The error wraps errors.ErrUnsupported where the driver or the kind of memory has none, and says
// which; ErrInvalid where addr is no memory of d.
func (d *Device) ExportDmaBuf(addr, n uint64) (fd int, offset uint64, err error) {
	err = exportable(d, addr, n)
	if err == nil {
		fd, offset, err = d.gpu.DMABuf(addr, n)
	}
	if err != nil {
		return -1, 0, fmt.Errorf("make a dma-buf of %d bytes at %#x of %s: %w", n, addr, d, err)
	}
	return fd, offset, nil
}

// exportable says what is known without asking the driver for it. How far mapped memory goes is for
// the driver to say: it may be in several pieces.
func exportable(d *Device, addr, n uint64) error {
	p, err := d.sys.lookup(addr)
	switch {
	case err != nil:
		return err
	case p.Kind == Managed:
		return fmt.Errorf("it is %v memory, which migrates: %w", p.Kind, errors.ErrUnsupported)
	case p.Kind != OnDevice:
		return fmt.Errorf("it is %v memory: %w", p.Kind, ErrInvalid)
	case p.Device != d:
		return fmt.Errorf("it is memory of %v: %w", p.Device, ErrInvalid)
	case n == 0, addr+n < addr, !p.FD && p.Bytes > 0 && addr+n > p.Base+p.Bytes:
		return fmt.Errorf("the allocation has %d bytes at %#x: %w", p.Bytes, p.Base, ErrInvalid)
	case !d.DMABuf:
		return fmt.Errorf("the driver does not support dma-buf: %w", errors.ErrUnsupported)
	}
	return nil
}
