// SPDX-License-Identifier: MIT

package emu

import (
	"runtime"
	"time"

	"mori/core/internal/sys/thread"
)

// How the thread waits: it looks again at once while there is work and some time after, for who
// waits for a completion posts again soon; then it naps, longer the longer nothing comes. Doorbells
// are words of memory, so nothing can wake it but packets and commands.
const (
	eager    = 50 * time.Microsecond
	drowsy   = 5 * time.Millisecond
	shortNap = 20 * time.Microsecond
	longNap  = 500 * time.Microsecond
	sleep    = 5 * time.Millisecond // nothing has come for a second
)

// run is the NIC's thread.
func (n *NIC) run() {
	defer close(n.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	last := time.Now()
	for {
		select {
		case <-n.stop:
			return
		default:
		}
		n.mu.Lock()
		now := time.Now()
		busy := n.step(now)
		idle := len(n.order) == 0
		n.mu.Unlock()
		if busy {
			last = now
			continue
		}
		n.rest(now.Sub(last), idle)
	}
}

// rest waits a while; quiet says that there is no queue pair.
func (n *NIC) rest(since time.Duration, quiet bool) {
	switch {
	case quiet:
		select {
		case <-n.wake:
		case <-n.stop:
		}
	case since < eager:
		thread.Yield()
	case since < drowsy:
		thread.Nap(shortNap)
	case since < time.Second:
		thread.Nap(longNap)
	default:
		select {
		case <-n.wake:
		case <-n.stop:
		case <-time.After(sleep):
		}
	}
}

// step is one round; it reports whether there was anything to do.
func (n *NIC) step(now time.Time) (busy bool) {
	n.round++
	n.in.Lock()
	packets := n.in.packets
	n.in.packets = nil
	n.in.Unlock()
	for _, p := range n.release() {
		n.dispatch(p)
		busy = true
	}
	for i := range packets {
		n.take(packets[i])
		busy = true
	}
	for _, q := range n.order {
		busy = q.listen() || busy
		busy = q.fetch() || busy
		busy = q.transmit(now) || busy
		busy = q.serve() || busy
		q.watch(now)
	}
	for _, c := range n.cqs {
		busy = c.drain() || busy
	}
	return busy || len(n.held) > 0
}

// take receives a packet, or has the chaos do something else.
func (n *NIC) take(p packet) {
	c := &n.opts.Chaos
	chance := func(of int) bool { return of > 0 && n.rnd.IntN(1000) < of }
	if chance(c.Loss) {
		n.stats.Lost++
		return
	}
	n.stats.Packets++
	if chance(c.Duplicate) {
		n.stats.Duplicated++
		n.dispatch(p)
	}
	if chance(c.Reorder) {
		n.stats.Reordered++
		p.held = n.round + 1 + uint64(n.rnd.IntN(100))
		n.held = append(n.held, p)
		return
	}
	n.dispatch(p)
}

// release returns the packets that were held back long enough.
func (n *NIC) release() (due []packet) {
	kept := n.held[:0]
	for _, p := range n.held {
		if p.held <= n.round {
			due = append(due, p)
		} else {
			kept = append(kept, p)
		}
	}
	n.held = kept
	return due
}

// dispatch gives a packet to its queue pair. One from elsewhere than the queue pair's peer is
// dropped.
func (n *NIC) dispatch(p packet) {
	q := n.qps[p.to]
	if q == nil || p.from != q.ctx.RemoteQPN || p.src != q.ctx.Path.GID {
		return
	}
	switch p.kind {
	case kindAck:
		q.answered(&p)
	case kindReadReply, kindAtomicReply:
		q.replied(&p)
	default:
		q.asked(&p)
	}
}

// send puts a packet of the queue pair on its way.
func (q *qp) send(p packet) {
	p.src, p.from, p.to = q.nic.gid, q.num, q.ctx.RemoteQPN
	if q.ctx.Path.GID == q.nic.gid {
		q.nic.in.Lock()
		q.nic.in.packets = append(q.nic.in.packets, p)
		q.nic.in.Unlock()
		return
	}
	q.nic.wire.send(q.ctx.Path.GID, &p)
}
