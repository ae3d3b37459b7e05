// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// completed takes what libfabric's queue held. With engine.polling held.
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

// notified passes on a peer's write with data. What has no place waits, and with it the queue.
func (e *endpoint) notified(c *lf.Completion) {
	w := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Src: e.source(c), Len: c.Len, Data: c.Data}
	if len(e.backlog) == 0 && e.Queues.Rx.TryPush(w) {
		return
	}
	e.backlog = append(e.backlog, w)
	e.domain.network.engine.pause(e.queue)
	e.retries.set()
}

// again offers libfabric what it did not take, and the queue what had no place. With engine.polling
// held.
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

// source is the number of the peer that sent c, 0 if it is not known.
func (e *endpoint) source(c *lf.Completion) fabric.AVAddr {
	if e.peers == nil || e.domain.offer.info.Caps&fabric.CapSource == 0 {
		return 0
	}
	return e.peers.source(c)
}
