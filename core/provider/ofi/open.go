// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// open makes the libfabric endpoint of info with a completion queue, and starts polling it. The
// caller holds polling.
func (e *endpoint) open(info lf.FID) (err error) {
	d := e.domain
	var fid, cq, fiAV lf.FID
	undo := func() {
		for _, f := range []lf.FID{fid, cq, fiAV} {
			if f != 0 {
				_ = f.Close()
			}
		}
	}
	// One entry for each slot, and as many for completions that peers cause.
	if cq, err = lf.OpenCQ(d.fid, 2*(e.limits.TxSize+e.limits.RxSize)); err != nil {
		return fmt.Errorf("open completion queue of libfabric: %w", cause(err))
	}
	if fid, err = lf.OpenEndpoint(d.fid, info); err != nil {
		undo()
		return fmt.Errorf("open endpoint of libfabric: %w", cause(err))
	}
	err = fid.Bind(cq, lf.Transmit|lf.Recv)
	if err == nil && e.peers != nil {
		if fiAV, err = lf.OpenAV(d.fid, 0); err == nil {
			err = fid.Bind(fiAV, 0)
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
	e.queue = d.network.engine.add(e, cq)
	if e.peers != nil {
		e.peers.fiAV = fiAV
	}
	e.ops.start(fid)
	return nil
}

// discard closes the libfabric endpoint. Its receives wait for the next one. The caller holds
// polling and mu.
func (e *endpoint) discard() {
	if e.ops.fid == 0 {
		return
	}
	g := e.domain.network.engine
	g.pause(e.queue)
	delete(g.takers, e.ops.fid)
	if len(e.backlog) == 0 {
		delete(g.owners, e.queue.Owner)
	}
	e.ops.stop()
	if e.peers != nil {
		e.peers.close()
	}
	_ = e.queue.CQ.Close()
}

// shut ends the libfabric endpoint. Earlier completions count, and all other ops end with an error.
// It calls before, if not nil, in between. The caller holds polling.
func (e *endpoint) shut(errno fabric.Errno, detail string, before func()) {
	if e.ops.fid != 0 {
		e.domain.network.engine.drain(e.queue)
	}
	if before != nil {
		before()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.discard()
	e.ops.end(errno, detail)
	e.only.reset(lf.NoPeer)
	if e.peers != nil {
		e.peers.clear()
	}
	if len(e.backlog) == 0 {
		e.retries.clear()
	}
}
