// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"
	"strings"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// open makes the libfabric endpoint of info with a completion queue, and starts to poll it. With
// polling held.
func (e *endpoint) open(info lf.FID) (err error) {
	d := e.domain
	var fid, cq lf.FID
	undo := func() {
		for _, f := range []lf.FID{fid, cq, e.fiAV} {
			if f != 0 {
				_ = f.Close()
			}
		}
		e.fiAV = 0
	}
	// One entry for each slot, and as many for what peers cause.
	if cq, err = lf.OpenCQ(d.fid, 2*(e.limits.TxSize+e.limits.RxSize)); err != nil {
		return fmt.Errorf("open completion queue of libfabric: %w", cause(err))
	}
	if fid, err = lf.OpenEndpoint(d.fid, info); err != nil {
		undo()
		return fmt.Errorf("open endpoint of libfabric: %w", cause(err))
	}
	err = fid.Bind(cq, lf.Transmit|lf.Recv)
	if err == nil && e.av != nil {
		if e.fiAV, err = lf.OpenAV(d.fid, 0); err == nil {
			err = fid.Bind(e.fiAV, 0)
		}
	} else if err == nil {
		err = fid.Bind(d.network.engine.eq, 0)
	}
	if err == nil {
		err = fid.Enable()
	}
	if err != nil {
		undo()
		return fmt.Errorf("enable endpoint of libfabric: %w", cause(err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fid, e.queue = fid, d.network.engine.add(e, cq)
	e.pump(&e.recvs)
	return nil
}

func (e *endpoint) openDatagram() error {
	d := e.domain
	info := d.offer.id
	if e.src != "" {
		addr, err := addrBytes(d.offer.fi.AddrFormat, exactName(e.src))
		if err != nil {
			return err
		}
		o, list, err := d.network.provider.find(&d.offer.info)
		if err != nil {
			return err
		}
		defer list.Free()
		if err := lf.SetSrc(o.id, addr, d.offer.fi.AddrFormat); err != nil {
			return cause(err)
		}
		info = o.id
	}
	g := d.network.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	if err := e.open(info); err != nil {
		return err
	}
	name, err := e.fid.Name()
	if err != nil {
		return fmt.Errorf("name of endpoint: %w", cause(err))
	}
	if e.name = addrText(d.offer.fi.AddrFormat, name); e.src != "" && e.name == exactName(e.src) {
		e.name = e.src // the same to peers
	}
	return nil
}

// exactName is a source address that shm does not make a unique one of: it appends numbers behind
// its own prefix.
func exactName(a fabric.Addr) fabric.Addr {
	if rest, ok := strings.CutPrefix(string(a), "fi_shm://"); ok {
		return fabric.Addr("fi_ns://" + rest)
	}
	return a
}

// discard closes the libfabric endpoint. Receives that it had wait for the next one. With polling
// and mu held.
func (e *endpoint) discard() {
	if e.fid == 0 {
		return
	}
	g := e.domain.network.engine
	g.pause(e.queue)
	delete(g.takers, e.fid)
	if len(e.backlog) == 0 {
		delete(g.owners, e.queue.Owner)
	}
	_ = e.fid.Close()
	if e.fiAV != 0 {
		_ = e.fiAV.Close()
	}
	_ = e.queue.CQ.Close()
	e.fid, e.fiAV = 0, 0
	e.recvs.reset(lf.NoPeer)
	e.table.each(func(i int32, s *slot) {
		if s.op.Kind == fabric.OpRecv {
			s.state = slotHeld
			e.recvs.push(&e.table, i)
		}
	})
}

// shut ends the libfabric endpoint: what completed before counts, and all other ops end with an
// error. before, if any, is called in between. With polling held.
func (e *endpoint) shut(errno fabric.Errno, detail string, before func()) {
	g := e.domain.network.engine
	if e.fid != 0 {
		g.drain(e.queue)
	}
	if before != nil {
		before()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.discard()
	e.table.each(func(i int32, _ *slot) { e.failed(i, errno, detail) })
	e.only.reset(lf.NoPeer)
	e.recvs.reset(lf.NoPeer)
	clear(e.lanes)
	clear(e.peers)
	if len(e.backlog) == 0 {
		e.settle()
	}
}
