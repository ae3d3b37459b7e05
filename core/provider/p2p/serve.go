// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
)

// A server executes the peer's orders on one connection.
type server struct {
	path    *dataPath
	gate    local.Gate                    // orders that are complete and not answered
	pending pathbase.Pending[servedOrder] // the same orders

	mu       sync.Mutex // protects what follows
	incoming *order     // its last frame has not arrived
	parts    int        // of all orders
}

// An order is the peer's request for a copy.
type order struct {
	number uint64
	share  *regionGrant // nil: the peer has not granted it
	key    fabric.RegionKey
	write  bool
	parts  []orderPart
}

// A servedOrder is an order with its copy. It is reused.
type servedOrder struct {
	payload
	*order
}

func (s *server) init(dp *dataPath) {
	s.path = dp
	s.pending.New = func() *servedOrder {
		o := &servedOrder{}
		o.init(dp, o)
		return o
	}
}

// onOrder handles a frame of an order, and starts a complete order.
func (s *server) onOrder(body []byte) error {
	in, err := s.collect(body)
	if err != nil || in == nil {
		return err
	}
	if !s.gate.Enter() {
		return nil // the connection is ending, which the peer detects
	}
	o := s.pending.Get()
	o.order = in
	s.pending.Add(o)
	s.start(o, false)
	return nil
}

// collect returns an order once its last frame has arrived.
func (s *server) collect(body []byte) (*order, error) {
	f, err := parseOrder(body, nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts += len(f.parts); s.parts > maxParts {
		return nil, fmt.Errorf("orders of more than %d parts: %w", maxParts, fabric.ErrProtocol)
	}
	if s.incoming == nil {
		s.incoming = &order{number: f.number, share: s.path.grants.Held.Share(f.share), key: f.key, write: f.write}
	}
	in := s.incoming
	if in.number != f.number { // frames arrive in order, so one order is complete before the next begins
		return nil, fmt.Errorf("order %d starts inside another: %w", f.number, fabric.ErrProtocol)
	}
	in.parts = append(in.parts, f.parts...)
	if !f.last {
		return nil, nil
	}
	s.incoming = nil
	return in, nil
}

// start starts the copy of an order. If it must block and wait is false, it continues in a
// goroutine.
func (s *server) start(o *servedOrder, wait bool) {
	err := s.accept(o)
	if err == nil {
		err = s.prepare(o, wait)
	}
	if errors.Is(err, pathbase.ErrNotYet) {
		o.release()
		go s.start(o, true)
		return
	}
	if err == nil {
		s.pending.Lock()
		o.noteRegions()
		s.pending.Unlock()
		err = s.path.domain.engine.start(&o.copyJob)
	}
	if err != nil {
		o.copied(err)
	}
}

// accept checks the peer's rights. prepare checks the bounds.
func (s *server) accept(o *servedOrder) error {
	if o.share == nil {
		return fmt.Errorf("the share of order %d: %w", o.number, fabric.ErrNoKey)
	}
	if err := o.enter(o.share); err != nil {
		return err
	}
	want := fabric.AccessRemoteRead
	if o.write {
		want = fabric.AccessRemoteWrite
	}
	mr, err := s.path.domain.table.Acquire(o.key, want)
	if err != nil {
		return err
	}
	o.held = append(o.held, hold{mr: mr})
	return nil
}

// errUnable means that the order is valid, but the stream has to carry the op.
var errUnable = errors.New("this process cannot copy for its peer")

func unable(err error) error { return fmt.Errorf("%w: %w", errUnable, err) }

// prepare chooses the device that copies, and builds the list of copies.
func (s *server) prepare(o *servedOrder, wait bool) error {
	share := &o.share.Region.regionRef
	d, err := o.share.Region.near()
	if err != nil {
		return unable(err)
	}
	base, err := o.reach(o.share, direction{d, !o.write}, wait)
	if errors.Is(err, pathbase.ErrNotYet) {
		return err
	} else if err != nil {
		return unable(err)
	}
	h := &o.held[0]
	if err := s.reachOwn(h, d, wait); err != nil {
		return err
	}
	o.clear(len(o.parts))
	kind := fabric.OpRead // from the region to the share
	if o.write {
		kind = fabric.OpWrite
	}
	for _, p := range o.parts {
		addr, err := h.mr.Range(p.region, p.n)
		if err != nil {
			return err
		}
		if p.share > share.size || p.n > share.size-p.share {
			return fmt.Errorf("%d bytes at %#x of a share of %d: %w", p.n, p.share, share.size, fabric.ErrRange)
		}
		if p.n > 0 {
			o.add(kind, base+p.share, addr+h.shift, p.n)
		}
	}
	return nil
}

// reachOwn gives d access to one of our regions.
func (s *server) reachOwn(h *hold, d *device.Device, wait bool) error {
	if h.mr.Buffer().Kind != fabric.MemHost {
		return enablePeer(h.mr, d)
	}
	p, err := s.path.domain.pinFor(h.mr, d, wait)
	if errors.Is(err, pathbase.ErrNotYet) {
		return err
	} else if err != nil {
		return unable(err)
	}
	h.pin, h.shift, h.reached = p, p.pinned.shift, true
	return nil
}

// enablePeer is reachOwn for device memory.
func enablePeer(mr *regions.MR, d *device.Device) error {
	own, err := pathbase.DeviceOf(mr.Buffer())
	if err == nil {
		err = d.EnablePeer(own)
	}
	if err == nil && own != d {
		err = isThere(d, mr.Buffer().Addr, mr.Buffer().Len)
	}
	if err != nil {
		return unable(err)
	}
	return nil
}

// holds reports whether a pending order keeps a local region open.
func (s *server) holds(region uint64) bool {
	return s.pending.Any(func(o *servedOrder) bool { return slices.Contains(o.regions, region) })
}

// copied answers an order; see copyOwner.
func (o *servedOrder) copied(err error) {
	s := &o.path.server
	s.pending.Remove(o) // before what holds reads changes
	o.release()         // before the peer is notified
	d := doneFrame{number: o.number}
	if err != nil {
		d.unable, d.err, d.text = errors.Is(err, errUnable), deviceErrno(err), err.Error()
	}
	s.mu.Lock()
	s.parts -= len(o.parts)
	s.mu.Unlock()
	o.reset()
	o.order = nil
	s.pending.Recycle(o)
	s.path.grants.Out.Post(frameDone, d.encode())
	s.path.grants.Out.Flush()
	s.gate.Leave()
}
