// SPDX-License-Identifier: MIT

package pathbase

import (
	"fmt"
	"maps"
	"sync/atomic"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/local"
)

// vendors maps each kind of device memory to its vendor.
var vendors = map[fabric.MemKind]device.Vendor{fabric.MemCUDA: device.CUDA, fabric.MemHIP: device.HIP}

// VendorOf returns the vendor of a kind of device memory.
func VendorOf(kind fabric.MemKind) device.Vendor { return vendors[kind] }

// An ordinal identifies a device.
type ordinal struct {
	kind fabric.MemKind
	n    int
}

// known caches the devices that DeviceOf has found, because listing all devices allocates. A new
// device replaces the map by a larger one.
var known atomic.Pointer[map[ordinal]*device.Device]

// DeviceOf returns the device that holds a buffer of device memory.
func DeviceOf(buf fabric.Buffer) (*device.Device, error) {
	which := ordinal{buf.Kind, buf.Device}
	if all := known.Load(); all != nil && (*all)[which] != nil {
		return (*all)[which], nil
	}
	d, err := FindDevice(buf.Kind, func(d *device.Device) bool { return d.Ordinal == buf.Device })
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, fmt.Errorf("%v device %d does not exist: %w", vendors[buf.Kind], buf.Device, fabric.ErrInvalid)
	}
	remember(which, d)
	return d, nil
}

func remember(which ordinal, d *device.Device) {
	for {
		old := known.Load()
		all := map[ordinal]*device.Device{which: d}
		if old != nil {
			maps.Copy(all, *old)
		}
		if known.CompareAndSwap(old, &all) {
			return
		}
	}
}

// FindDevice returns the first device of a kind's vendor that matches, or nil if none does.
func FindDevice(kind fabric.MemKind, matches func(*device.Device) bool) (*device.Device, error) {
	all, err := device.Devices()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, fabric.ErrNotSupported)
	}
	for _, d := range all {
		if d.Vendor == vendors[kind] && matches(d) {
			return d, nil
		}
	}
	return nil, nil
}

// DeviceRegion returns the region of a local segment of device memory, which the caller must
// release.
func DeviceRegion(table *regions.Table, s *fabric.Seg) (*regions.MR, error) {
	if mr := table.Device(s.MR); mr != nil {
		return mr, nil
	}
	return nil, local.OpFault(fabric.ErrNoMR, "descriptor %d of a local segment of %d bytes", s.MR, s.Len)
}
