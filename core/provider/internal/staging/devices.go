// SPDX-License-Identifier: MIT

package staging

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
)

// Devices holds the staging buffers of the devices whose memory a domain moves. The zero value is
// ready to use.
type Devices struct {
	mu     sync.Mutex // protects what follows
	open   map[location]*device.Staging
	closed bool
}

// A location names a device.
type location struct {
	kind   fabric.MemKind
	device int
}

var vendors = map[fabric.MemKind]device.Vendor{fabric.MemCUDA: device.CUDA, fabric.MemHIP: device.HIP}

// Of returns the staging buffers of the device that holds buf.
func (d *Devices) Of(buf fabric.Buffer) (*device.Staging, error) {
	on := location{buf.Kind, buf.Device}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.open[on]; s != nil {
		return s, nil
	}
	if d.closed {
		return nil, fabric.ErrClosed
	}
	all, err := device.Devices()
	if err != nil {
		return nil, fmt.Errorf("stage memory of a GPU: %w", err)
	}
	for _, dev := range all {
		if dev.Vendor == vendors[buf.Kind] && dev.Ordinal == buf.Device {
			if d.open == nil {
				d.open = make(map[location]*device.Staging)
			}
			d.open[on] = dev.OpenStaging()
			return d.open[on], nil
		}
	}
	return nil, fmt.Errorf("stage memory of %v device %d, which this process does not see: %w", vendors[buf.Kind], buf.Device, fabric.ErrInvalid)
}

// OfOp returns the staging buffers of the device that holds the local segments of op, or nil if
// they are all in host memory. It checks that each segment is inside its region, and that all
// device segments are on one device.
func (d *Devices) OfOp(op *fabric.Op, regions *regions.Table) (*device.Staging, error) {
	if !regions.TakesDevice() || !OnDevice(op) {
		return nil, nil
	}
	switch {
	case op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite:
		return nil, fmt.Errorf("%v from or to device memory, which only reads and writes support: %w", op.Kind, fabric.ErrNotSupported)
	case op.Flags&fabric.OpInject != 0:
		return nil, fmt.Errorf("inject device memory: %w", fabric.ErrNotSupported)
	}
	var on, within fabric.Buffer
	var last fabric.MRDesc
	for i := range 1 + len(op.More) {
		g := op.LocalSeg(i)
		if g.MR == 0 || g.MR == last && inside(g, &within) {
			continue // the common case in a list of thousands
		}
		if g.MR != last {
			mr := regions.Device(g.MR)
			if mr == nil {
				return nil, fmt.Errorf("descriptor %d is not of a region of device memory: %w", g.MR, fabric.ErrNoMR)
			}
			last, within = g.MR, mr.Buffer()
			mr.Release()
		}
		if !inside(g, &within) {
			return nil, fmt.Errorf("%d bytes at %#x are outside the region of descriptor %d: %w", g.Len, g.Addr, g.MR, fabric.ErrRange)
		}
		if on.Kind == fabric.MemHost {
			on = within
		} else if on.Kind != within.Kind || on.Device != within.Device {
			return nil, fmt.Errorf("segments on devices %d and %d in one op: %w", on.Device, within.Device, fabric.ErrNotSupported)
		}
	}
	return d.Of(on)
}

func inside(g *fabric.Seg, buf *fabric.Buffer) bool {
	return g.Addr >= buf.Addr && g.Len <= buf.Len && g.Addr-buf.Addr <= buf.Len-g.Len
}

// Close closes all buffers. Of then opens no new ones.
func (d *Devices) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var errs []error
	for _, s := range d.open {
		errs = append(errs, s.Close())
	}
	d.open = nil
	return errors.Join(errs...)
}

// OnDevice reports whether op has local segments of device memory.
func OnDevice(op *fabric.Op) bool {
	if op.Seg.MR != 0 {
		return true
	}
	for i := range op.More {
		if op.More[i].MR != 0 {
			return true
		}
	}
	return false
}

// errNoMem is the errno if no pinned memory can be allocated.
const errNoMem = fabric.Errno(syscall.ENOMEM)

// Errno returns the errno of a failed copy.
func Errno(err error) fabric.Errno {
	var errno fabric.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, device.ErrNoMemory):
		return errNoMem
	}
	return fabric.ErrOther
}
