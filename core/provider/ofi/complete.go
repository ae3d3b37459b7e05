// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// completed handles completions from libfabric's queue. The caller holds engine.polling.
func (e *endpoint) completed(done []lf.Completion) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range done {
		c := &done[i]
		if c.Err == 0 && c.Flags&lf.RemoteWrite != 0 && c.Flags&lf.RemoteCQData != 0 {
			e.notified(c)
		} else if j, ok := e.ops.table.find(c.Ctx); ok {
			from := fabric.AVAddr(0)
			if e.ops.receives(j) {
				from = e.source(c)
			}
			e.ops.ended(j, c, from)
		}
	}
}

// notified reports a peer's write with data. If the CQ has no place, the completion waits, and with
// it the queue.
func (e *endpoint) notified(c *lf.Completion) {
	w := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: e.source(c), Len: c.Len, Data: c.Data}
	if len(e.backlog) == 0 && e.Queues.Rx.TryPush(w) {
		return
	}
	e.backlog = append(e.backlog, w)
	e.domain.network.engine.pause(e.queue)
	e.retries.set()
}

// again retries ops that libfabric did not accept, and completions for which the queue had no
// place. The caller holds engine.polling.
func (e *endpoint) again() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.retries.due {
		return
	}
	e.retries.clear()
	e.ops.pump(&e.ops.recvs)
	e.ops.pump(&e.only)
	if e.peers != nil {
		for _, l := range e.peers.byAddr {
			e.ops.pump(l)
		}
	}
	for len(e.backlog) > 0 && e.Queues.Rx.TryPush(e.backlog[0]) {
		if e.backlog = e.backlog[1:]; len(e.backlog) == 0 {
			e.backlog = nil
		}
	}
	if len(e.backlog) > 0 {
		e.retries.set()
	} else if e.ops.fid != 0 {
		e.domain.network.engine.resume(e.queue)
	}
}

// source returns the number of the peer that sent c, or 0 if it is unknown.
func (e *endpoint) source(c *lf.Completion) fabric.AVAddr {
	if e.peers == nil || e.domain.offer.info.Caps&fabric.CapSource == 0 {
		return 0
	}
	return e.peers.source(c)
}
