// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"syscall"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
)

// A payload is a copy and what it holds until it ends: the grant of the peer's region, the peer's
// fence, and the local regions. It is part of a pendingOp or of a servedOrder.
type payload struct {
	copyJob

	path    *dataPath
	grant   *regionGrant
	held    []hold
	regions []uint64 // ids of held since noteRegions
}

// A hold is a local region that is kept open, and how devices access it.
type hold struct {
	mr      *regions.MR
	pin     *hostPin // of host memory: the payload has entered its gate
	shift   uint64   // from host addresses to the device's
	reached bool     // the copying device has access
}

func (x *payload) init(dp *dataPath, owner copyOwner) {
	x.path, x.group, x.owner = dp, dp, owner
}

// reset prepares a released payload for another copy.
func (x *payload) reset() {
	x.copyJob.reset()
	x.regions = x.regions[:0]
}

// enter begins an access to the peer's memory, unless its grant or its fence forbids it.
func (x *payload) enter(l *regionGrant) error {
	if err := pathbase.Enter(l); err != nil {
		return err
	}
	if !x.path.peer.theirs.Enter() {
		l.Use.Leave()
		return x.path.closedByPeer()
	}
	x.grant = l
	return nil
}

// release releases all that the payload holds.
func (x *payload) release() {
	if x.grant != nil {
		x.path.peer.theirs.Leave()
		x.grant.Use.Leave()
		x.grant = nil
	}
	for i := range x.held {
		if h := &x.held[i]; h.pin != nil {
			h.pin.use.Leave()
		}
		x.held[i].mr.Release()
		x.held[i] = hold{}
	}
	x.held = x.held[:0]
}

// noteRegions records which local regions the payload holds.
func (x *payload) noteRegions() {
	x.regions = x.regions[:0]
	for i := range x.held {
		x.regions = append(x.regions, x.held[i].mr.Key().ID)
	}
}

// copier returns the device that copies: that of the local memory, else one near the peer's.
func (x *payload) copier(l *regionGrant, gpu *fabric.Seg) (*device.Device, error) {
	if gpu == nil {
		return l.Region.near()
	}
	h, err := x.holdDevice(gpu)
	if err != nil {
		return nil, err
	}
	h.reached = true // it belongs to this device
	return pathbase.DeviceOf(h.mr.Buffer())
}

// reach selects the lane of a device and a direction, and returns the address at which the device
// sees the region of l.
func (x *payload) reach(l *regionGrant, way direction, wait bool) (base uint64, err error) {
	if x.lane = x.path.domain.engine.laneOf(way); x.lane == nil {
		if !wait {
			return 0, pathbase.ErrNotYet
		}
		if x.lane, err = x.path.domain.engine.openLane(way); err != nil {
			return 0, err
		}
	}
	m, ok := l.Region.mapped(way.dev)
	if !ok {
		if !wait {
			return 0, pathbase.ErrNotYet
		}
		m = l.Region.open(way.dev, x.path.peer.same)
	}
	if m.err != nil {
		return 0, fmt.Errorf("%w: %w", errUnreachable, m.err)
	}
	return m.addr, nil
}

// holdDevice keeps the region of a segment of device memory open.
func (x *payload) holdDevice(s *fabric.Seg) (*hold, error) {
	for i := range x.held {
		if h := &x.held[i]; h.mr.Desc() == s.MR {
			return h, inside(h.mr, s)
		}
	}
	mr, err := pathbase.DeviceRegion(x.path.domain.table, s)
	if err != nil {
		return nil, err
	}
	x.held = append(x.held, hold{mr: mr})
	return &x.held[len(x.held)-1], inside(mr, s)
}

// inside rejects a segment that is not within its region.
func inside(mr *regions.MR, s *fabric.Seg) error {
	b := mr.Buffer()
	if s.Addr < b.Addr || s.Addr-b.Addr > b.Len || s.Len > b.Len-(s.Addr-b.Addr) {
		return local.OpFault(fabric.ErrRange, "local segment of %d bytes at %#x, in region %d of %d at %#x", s.Len, s.Addr, mr.Key().ID, b.Len, b.Addr)
	}
	return nil
}

// holdHost keeps the region of a segment of host memory open, and its pin entered.
func (x *payload) holdHost(s *fabric.Seg, wait bool) (*hold, error) {
	for i := range x.held {
		if h := &x.held[i]; h.pin != nil && inside(h.mr, s) == nil {
			return h, nil
		}
	}
	mr := x.path.domain.table.Host(s.Addr, s.Len)
	if mr == nil {
		return nil, fmt.Errorf("a local segment of %d bytes at %#x is not in a registered region", s.Len, s.Addr)
	}
	p, err := x.path.domain.pinFor(mr, x.lane.copier.Device(), wait)
	if err != nil {
		mr.Release()
		return nil, err
	}
	x.held = append(x.held, hold{mr: mr, pin: p, shift: p.pinned.shift})
	return &x.held[len(x.held)-1], nil
}

// fault returns the error of a payload whose copy failed.
func (x *payload) fault(err error) error {
	pieces := max(len(x.segs), len(x.blocks.DstOffsets))
	return local.OpFault(deviceErrno(err), "%d bytes in %d pieces with %s: %v", x.bytes, pieces, x.path.port.Peer(), err)
}

// deviceErrno returns the Errno for a driver's error.
func deviceErrno(err error) fabric.Errno {
	var errno fabric.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, device.ErrNoMemory):
		return fabric.Errno(syscall.ENOMEM)
	case errors.Is(err, device.ErrNoPeer), errors.Is(err, device.ErrImage), errors.Is(err, errors.ErrUnsupported):
		return fabric.ErrNotSupported
	case errors.Is(err, device.ErrInvalid):
		return fabric.ErrInvalid
	case errors.Is(err, device.ErrLost):
		return fabric.Errno(syscall.EIO)
	case errors.Is(err, device.ErrTimeout):
		return fabric.ErrTimeout
	}
	return fabric.ErrOther
}
