// SPDX-License-Identifier: MIT

package stream

import (
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"mori/core/device"
	"mori/core/fabric"
)

// logDevice writes down what a device did wrong: peers get no more than an errno.
func (ep *Endpoint) logDevice(what string, err error) {
	ep.cfg.log(slog.LevelWarn, what, "provider", ep.cfg.Info.Provider, "peer", ep.peer, "err", err)
}

// errNoMem: there is no pinned memory.
const errNoMem = fabric.Errno(syscall.ENOMEM)

// deviceErrno is the cause of a failed copy as an errno.
func deviceErrno(err error) fabric.Errno {
	var errno fabric.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, device.ErrNoMemory):
		return errNoMem
	}
	return fabric.ErrOther
}

// takesDevice reports whether device memory may be registered.
func (d *Domain) takesDevice() bool { return d.regions.TakesDevice() }

// stagingOf is the staging of the device that memory is on.
func (d *Domain) stagingOf(buf fabric.Buffer) (*device.Staging, error) {
	on := place{buf.Kind, buf.Device}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.stagings[on]; s != nil {
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
			if d.stagings == nil {
				d.stagings = make(map[place]*device.Staging)
			}
			d.stagings[on] = dev.OpenStaging()
			return d.stagings[on], nil
		}
	}
	return nil, fmt.Errorf("stage memory of %v device %d, which is not here: %w", vendors[buf.Kind], buf.Device, fabric.ErrInvalid)
}

// A place is which device memory is on.
type place struct {
	kind   fabric.MemKind
	device int
}

var vendors = map[fabric.MemKind]device.Vendor{fabric.MemCUDA: device.CUDA, fabric.MemHIP: device.HIP}
