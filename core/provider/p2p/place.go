// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
)

// A place is where a region is, as its owner describes it to a peer.
type place struct {
	addr, size uint64 // in the owner's process
	access     fabric.Access
	kind       fabric.MemKind
	uuid       string           // the device's
	ipc        device.IPCHandle // Bytes is 0 if it is not exported
	why        string           // it is not
}

func (p *place) exported() bool { return p.ipc.Bytes > 0 }

// describe says where a region is. One of another process needs a handle for device memory.
func describe(mr *regions.MR, sameProcess bool) place {
	buf := mr.Buffer()
	p := place{addr: buf.Addr, size: buf.Len, access: mr.Access(), kind: buf.Kind}
	if buf.Kind == fabric.MemHost {
		return p
	}
	d, err := deviceOf(buf)
	if err == nil {
		p.uuid = d.UUID
		if !sameProcess {
			p.ipc, err = d.ExportIPC(buf.Addr)
		}
	}
	if err == nil && p.exported() && p.size > p.ipc.Bytes-p.ipc.Offset {
		err = fmt.Errorf("region of %d bytes goes beyond its allocation, which has %d from there", p.size, p.ipc.Bytes-p.ipc.Offset)
	}
	if err != nil {
		p.ipc, p.why = device.IPCHandle{}, err.Error()
	}
	return p
}

var vendors = map[fabric.MemKind]device.Vendor{fabric.MemCUDA: device.CUDA, fabric.MemHIP: device.HIP}

// deviceOf finds the device of a buffer.
func deviceOf(buf fabric.Buffer) (*device.Device, error) {
	which := ordinal{buf.Kind, buf.Device}
	if all := known.Load(); all != nil && (*all)[which] != nil {
		return (*all)[which], nil
	}
	d, err := findDevice(buf.Kind, func(d *device.Device) bool { return d.Ordinal == buf.Device })
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, fmt.Errorf("there is no %v device %d: %w", vendors[buf.Kind], buf.Device, fabric.ErrInvalid)
	}
	remember(which, d)
	return d, nil
}

type ordinal struct {
	kind fabric.MemKind
	n    int
}

// known are the devices that deviceOf has found, replaced when there is one more: to list all of
// them takes memory each time.
var known atomic.Pointer[map[ordinal]*device.Device]

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

// findDevice is the first device of a vendor that suits, nil if none does.
func findDevice(kind fabric.MemKind, suits func(*device.Device) bool) (*device.Device, error) {
	all, err := device.Devices()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, fabric.ErrNotSupported)
	}
	for _, d := range all {
		if d.Vendor == vendors[kind] && suits(d) {
			return d, nil
		}
	}
	return nil, nil
}

// near is the device that copies to and from p where nothing else decides it: the one that has it,
// if this process sees it, else any of that vendor, through which the driver may open it all the
// same.
func (p *place) near() (*device.Device, error) {
	d, err := findDevice(p.kind, func(d *device.Device) bool { return d.UUID == p.uuid })
	if d == nil && err == nil {
		d, err = findDevice(p.kind, func(*device.Device) bool { return true })
	}
	if d == nil && err == nil {
		err = fmt.Errorf("this process sees no %v device, which the peer's memory is on: %w", vendors[p.kind], fabric.ErrNotSupported)
	}
	return d, err
}

// A mapping is a place as one device sees it.
type mapping struct {
	dev  *device.Device
	addr uint64
	err  error // there is none
	undo func() error
}

// open lets d at p, which is of this process or of another.
func (p *place) open(d *device.Device, sameProcess bool) mapping {
	m := mapping{dev: d}
	switch {
	case p.kind == fabric.MemHost && sameProcess:
		var pinned *pinned
		if pinned, m.err = pin(d, p.addr, p.size); m.err == nil {
			m.addr, m.undo = p.addr+pinned.shift, pinned.release
		}
	case p.kind == fabric.MemHost:
		m.err = fmt.Errorf("host memory of another process: %w", fabric.ErrNotSupported)
	default:
		if m.err = p.reachable(d); m.err != nil {
			return m
		}
		if m.addr = p.addr; !sameProcess {
			p.openIPC(&m)
		} else {
			m.err = isThere(d, p.addr, p.size)
		}
	}
	return m
}

// reachable lets d at the device of p, if this process sees that.
func (p *place) reachable(d *device.Device) error {
	owner, err := findDevice(p.kind, func(d *device.Device) bool { return d.UUID == p.uuid })
	if err != nil {
		return err
	}
	if owner == nil || owner == d {
		if d.Vendor != vendors[p.kind] {
			return fmt.Errorf("%s does not reach memory of %v: %w", d, vendors[p.kind], device.ErrNoPeer)
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

// isThere looks whether n bytes of this process are device memory all of it, in one allocation or
// several, which d reaches: a copy beyond would cost the process its device. Peer access is to what
// is allocated for all; virtual and pool memory is for the devices that its owner has let at it,
// which drivers do not report.
func isThere(d *device.Device, addr, n uint64) error {
	for next, end := addr, addr+n; next < end; {
		at, err := device.Lookup(next)
		if err != nil {
			return err
		}
		if at.Kind != device.OnDevice && at.Kind != device.Managed {
			return fmt.Errorf("%d bytes at %#x, and what is at %#x is %v memory: %w", n, addr, next, at.Kind, fabric.ErrInvalid)
		}
		if at.Device != d && at.Kind == device.OnDevice && !at.IPC {
			return fmt.Errorf("virtual or pool memory of %v, which %s may not reach: %w", at.Device, d, device.ErrNoPeer)
		}
		if at.Bytes == 0 || at.Base+at.Bytes <= next {
			return nil // the driver does not say more
		}
		next = at.Base + at.Bytes
	}
	return nil
}

func (p *place) openIPC(m *mapping) {
	if !p.exported() {
		m.err = fmt.Errorf("the peer cannot export the region: %s: %w", p.why, fabric.ErrNotSupported)
		return
	}
	mem, err := m.dev.OpenIPC(p.ipc)
	if err != nil {
		m.err = err
		return
	}
	m.addr, m.undo = mem.Addr(), mem.Close
	// What a peer says of sizes is not believed: a copy beyond the allocation would cost this
	// process its device.
	if at, err := device.Lookup(m.addr); err == nil && at.Bytes > 0 && (m.addr < at.Base || m.addr+p.size > at.Base+at.Bytes) {
		err = fmt.Errorf("region of %d bytes at %#x of an allocation of %d at %#x: %w", p.size, m.addr, at.Bytes, at.Base, fabric.ErrProtocol)
		*m = mapping{dev: m.dev, err: errors.Join(err, mem.Close())}
	}
}
