// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
)

// ExportDmaBuf exports n bytes of memory at addr as a dma-buf for NICs. It returns a descriptor,
// which the caller closes, and the offset of the bytes in it; the dma-buf may extend beyond them on
// both sides. The importer keeps the memory alive, but the addresses must stay mapped while it is
// used.
//
// The error wraps errors.ErrUnsupported if the driver or the kind of memory does not support it,
// and says which. It wraps ErrInvalid if addr is not memory of d.
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

// exportable checks what is known without the driver. The driver checks the extent of mapped
// memory, which may consist of several pieces.
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
