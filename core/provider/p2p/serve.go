// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
)

// onOrder takes a piece of an order of the peer, and begins one that is whole.
func (dp *dataPath) onOrder(body []byte) error {
	o, err := dp.orders.collect(body, dp.holder.Share)
	if err != nil || o == nil {
		return err
	}
	if !dp.serving.Enter() {
		return nil // the connection is at its end, which the peer sees
	}
	f := dp.newFlight()
	f.order = o
	dp.pending.Add(f)
	if dp.serve(f, false) == notYet {
		go dp.serve(f, true)
	}
	return nil
}

// collect returns an order when its last piece came.
func (o *orders) collect(body []byte, share func(uint64) *regionGrant) (*order, error) {
	if len(body) < 8 {
		return nil, fmt.Errorf("order frame of %d bytes: %w", len(body), fabric.ErrProtocol)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := parseOrder(body, nil)
	if err != nil {
		return nil, err
	}
	if o.parts += len(f.parts); o.parts > maxParts {
		return nil, fmt.Errorf("orders of more than %d parts: %w", maxParts, fabric.ErrProtocol)
	}
	in := o.incoming[f.number]
	if in == nil {
		if len(o.incoming) > 0 { // frames come in order, so one is whole before the next begins
			return nil, fmt.Errorf("order %d begins inside another: %w", f.number, fabric.ErrProtocol)
		}
		in = &order{number: f.number, share: share(f.share), key: f.key, write: f.write}
		o.incoming[f.number] = in
	}
	in.parts = append(in.parts, f.parts...)
	if !f.last {
		return nil, nil
	}
	delete(o.incoming, f.number)
	return in, nil
}

// serve carries out an order. It is called again with wait after notYet.
func (dp *dataPath) serve(f *flight, wait bool) outcome {
	err := dp.accept(f)
	if err == nil {
		err = dp.prepareOrder(f, wait)
	}
	switch {
	case err == nil:
		dp.takeOff(f)
		return begun
	case errors.Is(err, errNotYet):
		f.release()
		return notYet
	}
	dp.answer(f, err)
	return begun
}

// accept checks the peer's claims, but for bounds.
func (dp *dataPath) accept(f *flight) error {
	if f.order.share == nil {
		return fmt.Errorf("the share of order %d: %w", f.order.number, fabric.ErrNoKey)
	}
	if err := dp.enter(f, f.order.share); err != nil {
		return err
	}
	want := fabric.AccessRemoteRead
	if f.order.write {
		want = fabric.AccessRemoteWrite
	}
	mr, err := dp.domain.table.Acquire(f.order.key, want)
	if err != nil {
		return err
	}
	f.held = append(f.held, hold{mr: mr})
	return nil
}

// prepareOrder chooses the device and lists what it copies. Errors that wrap errUnable say that
// nothing is wrong with the order.
func (dp *dataPath) prepareOrder(f *flight, wait bool) error {
	o := f.order
	d, err := o.share.Region.near()
	if err != nil {
		return fmt.Errorf("%w: %w", errUnable, err)
	}
	if err := dp.board(f, o.share, way{d, !o.write}, wait); errors.Is(err, errNotYet) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", errUnable, err)
	}
	at, _ := o.share.Region.mapped(d)
	h := &f.held[0]
	if err := dp.reachOwn(h, d, wait); err != nil {
		return err
	}
	f.segs, f.bytes = f.segs[:0], 0
	kind := fabric.OpRead // from the region to the share
	if o.write {
		kind = fabric.OpWrite
	}
	for _, p := range o.parts {
		addr, err := h.mr.Range(p.region, p.n)
		if err != nil {
			return err
		}
		if p.share > o.share.Region.size || p.n > o.share.Region.size-p.share {
			return fmt.Errorf("%d bytes at %#x of a share of %d: %w", p.n, p.share, o.share.Region.size, fabric.ErrRange)
		}
		if p.n > 0 {
			f.add(kind, at.addr+p.share, addr+h.shift, p.n)
		}
	}
	return nil
}

// errUnable: the order is to go another way.
var errUnable = errors.New("this process cannot copy for its peer")

// reachOwn lets d at a region of ours.
func (dp *dataPath) reachOwn(h *hold, d *device.Device, wait bool) error {
	if h.mr.Buffer().Kind == fabric.MemHost {
		p, err := dp.pinned(h.mr, d, wait)
		if err != nil {
			if errors.Is(err, errNotYet) {
				return err
			}
			return fmt.Errorf("%w: %w", errUnable, err)
		}
		h.pin, h.shift, h.reached = p, p.pinned.shift, true
		return nil
	}
	return dp.enablePeer(h.mr, d)
}

func (dp *dataPath) enablePeer(mr *regions.MR, d *device.Device) error {
	own, err := deviceOf(mr.Buffer())
	if err == nil {
		err = d.EnablePeer(own)
	}
	if err == nil && own != d {
		err = isThere(d, mr.Buffer().Addr, mr.Buffer().Len)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnable, err)
	}
	return nil
}

// served is the engine's report on an order.
func (dp *dataPath) served(f *flight, err error) { dp.answer(f, err) }

// answer reports an order's end to the peer.
func (dp *dataPath) answer(f *flight, err error) {
	dp.pending.Remove(f)
	f.release() // before the peer hears of it
	d := doneFrame{number: f.order.number}
	if err != nil {
		d.unable, d.err, d.text = errors.Is(err, errUnable), deviceErrno(err), err.Error()
	}
	dp.orders.mu.Lock()
	dp.orders.parts -= len(f.order.parts)
	dp.orders.mu.Unlock()
	dp.freeFlight(f)
	dp.out.Post(frameDone, d.encode())
	dp.out.Flush()
	dp.serving.Leave()
}
