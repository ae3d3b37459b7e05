// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/pathbase"
)

// A regionRef is a region's location, as its owner describes it to a peer.
type regionRef struct {
	addr, size uint64 // in the owner's process
	access     fabric.Access
	kind       fabric.MemKind
	uuid       string           // the device's
	ipc        device.IPCHandle // Bytes is 0 if it is not exported
	why        string           // why it is not exported
}

func (r *regionRef) exported() bool { return r.ipc.Bytes > 0 }

// describe returns the description of a region for a peer. A peer in another process needs a handle
// for device memory.
func describe(mr *regions.MR, sameProcess bool) regionRef {
	buf := mr.Buffer()
	r := regionRef{addr: buf.Addr, size: buf.Len, access: mr.Access(), kind: buf.Kind}
	if buf.Kind == fabric.MemHost {
		return r
	}
	d, err := pathbase.DeviceOf(buf)
	if err == nil {
		r.uuid = d.UUID
		if !sameProcess {
			r.ipc, err = d.ExportIPC(buf.Addr)
		}
	}
	if err == nil && r.exported() && r.size > r.ipc.Bytes-r.ipc.Offset {
		err = fmt.Errorf("region of %d bytes exceeds its allocation, which has %d bytes left there", r.size, r.ipc.Bytes-r.ipc.Offset)
	}
	if err != nil {
		r.ipc, r.why = device.IPCHandle{}, err.Error()
	}
	return r
}

// near returns the device that copies to and from r if no local segment determines it. That is r's
// own device if this process sees it. Otherwise it is any device of that vendor, since the driver
// may be able to open r through it.
func (r *regionRef) near() (*device.Device, error) {
	d, err := pathbase.FindDevice(r.kind, func(d *device.Device) bool { return d.UUID == r.uuid })
	if d == nil && err == nil {
		d, err = pathbase.FindDevice(r.kind, func(*device.Device) bool { return true })
	}
	if d == nil && err == nil {
		err = fmt.Errorf("the peer's memory is on a %v device, and this process sees none: %w", pathbase.VendorOf(r.kind), fabric.ErrNotSupported)
	}
	return d, err
}

// A mapping is a region of the peer as one device accesses it.
type mapping struct {
	dev  *device.Device
	addr uint64
	err  error // why the device has no access
	undo func() error
}

// open gives d access to r, a region of this or another process.
func (r *regionRef) open(d *device.Device, sameProcess bool) mapping {
	m := mapping{dev: d}
	switch {
	case r.kind == fabric.MemHost && sameProcess:
		var pinned *pinned
		if pinned, m.err = pin(d, r.addr, r.size); m.err == nil {
			m.addr, m.undo = r.addr+pinned.shift, pinned.release
		}
	case r.kind == fabric.MemHost:
		m.err = fmt.Errorf("host memory of another process: %w", fabric.ErrNotSupported)
	default:
		if m.err = r.reachable(d); m.err != nil {
			return m
		}
		if m.addr = r.addr; !sameProcess {
			r.openIPC(&m)
		} else {
			m.err = isThere(d, r.addr, r.size)
		}
	}
	return m
}

// reachable gives d access to r's device, if this process sees that device.
func (r *regionRef) reachable(d *device.Device) error {
	owner, err := pathbase.FindDevice(r.kind, func(d *device.Device) bool { return d.UUID == r.uuid })
	if err != nil {
		return err
	}
	if owner == nil || owner == d {
		if d.Vendor != pathbase.VendorOf(r.kind) {
			return fmt.Errorf("%s cannot access memory of %v: %w", d, pathbase.VendorOf(r.kind), device.ErrNoPeer)
		}
		return nil
	}
	reach, err := d.Reach(owner)
	if err != nil {
		return err
	}
	if !reach.Access {
		return fmt.Errorf("%s and %s: %w", d, owner, device.ErrNoPeer)
	}
	return d.EnablePeer(owner)
}

// isThere checks that n bytes of this process are device memory, in one or more allocations, and
// that d can access them: a copy beyond them would make the device unusable for this process. Peer
// access does not cover virtual and pool memory. Its owner gives access to single devices, and
// drivers do not report which.
func isThere(d *device.Device, addr, n uint64) error {
	for next, end := addr, addr+n; next < end; {
		at, err := device.Lookup(next)
		if err != nil {
			return err
		}
		if at.Kind != device.OnDevice && at.Kind != device.Managed {
			return fmt.Errorf("%d bytes at %#x, but the memory at %#x is %v memory: %w", n, addr, next, at.Kind, fabric.ErrInvalid)
		}
		if at.Device != d && at.Kind == device.OnDevice && !at.IPC {
			return fmt.Errorf("virtual or pool memory of %v, which %s cannot access: %w", at.Device, d, device.ErrNoPeer)
		}
		if at.Bytes == 0 || at.Base+at.Bytes <= next {
			return nil // the driver does not say more
		}
		next = at.Base + at.Bytes
	}
	return nil
}

func (r *regionRef) openIPC(m *mapping) {
	if !r.exported() {
		m.err = fmt.Errorf("the peer cannot export the region: %s: %w", r.why, fabric.ErrNotSupported)
		return
	}
	mem, err := m.dev.OpenIPC(r.ipc)
	if err != nil {
		m.err = err
		return
	}
	m.addr, m.undo = mem.Addr(), mem.Close
	// Do not trust the peer's sizes: a copy beyond the allocation would make the device unusable for
	// this process.
	if at, err := device.Lookup(m.addr); err == nil && at.Bytes > 0 && (m.addr < at.Base || m.addr+r.size > at.Base+at.Bytes) {
		err = fmt.Errorf("region of %d bytes at %#x of an allocation of %d at %#x: %w", r.size, m.addr, at.Bytes, at.Base, fabric.ErrProtocol)
		*m = mapping{dev: m.dev, err: errors.Join(err, mem.Close())}
	}
}
