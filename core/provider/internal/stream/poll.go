// SPDX-License-Identifier: MIT

package stream

import (
	"sync/atomic"
	"syscall"
	"time"

	"mori/core/fabric/util"
)

// A program that looks into its completion queue over and over has a processor that could as well read the socket: then no other
// thread has to be woken for a message, and no answer needs a packet of its own, since it goes with what the program submits next. So the
// goroutine of link 0 lends its reader, and what is left to send, to who calls CQ.Read, as long as somebody does and something comes.
// It takes them back when a program parks in CQ.Wait, when nobody has looked for takeBack, and when nothing came for coldPolls looks.
// Of looks at a link that is not lent only one in coldLook is a system call, for programs that leave the goroutine no processor.
//
// A message there and one back between two processes on 2 cores, one way, lent and with goroutines alone: 64 B 5.9 and 97 to 134 µs, 64 KiB
// 20 and 124 µs, 1 MiB 195 and 770 µs. fi_pingpong on libfabric's tcp beside it: 5.4, 22 and 202 µs, on tcp;ofi_rxm: 10, 57 and 240 µs.
const (
	// warmPolls is how many looks between two waits of the reader make it lend.
	warmPolls = 16
	// coldPolls is after how many looks without a byte it has the link back.
	coldPolls = 20_000
	// coldLook is how many looks at a link that is not lent make one.
	coldLook = 128
	// takeBack is how long what arrives can lie when a program stops looking.
	takeBack = time.Millisecond
	// lentLowWater keeps the socket from waking Go's poller for less while it is lent. 64 KiB to 4 MiB made no difference.
	lentLowWater = 1 << 20
)

// A lending is the part of a reader that has to do with pollers.
type lending struct {
	lent  atomic.Bool // changes with link.mu held
	seen  uint64      // polls when the goroutine waited last
	cold  int         // looks without a byte
	back  chan struct{}
	timer *time.Timer
}

func (b *lending) init() { b.back = make(chan struct{}, 1) }

// A poller is the util.Source of an endpoint.
type poller struct {
	ep     *Endpoint
	looks  atomic.Uint64
	parked atomic.Int32 // readers of the queues that are parked: who waits is not to wait for a look
}

var _ util.Source = (*poller)(nil)

// mayLend reports whether somebody polls, and nobody is parked. With the reader's mu held.
func (l *link) mayLend() bool {
	n := l.ep.poller.looks.Load()
	warm := n-l.in.seen >= warmPolls
	l.in.seen = n
	return warm && l.index == 0 && l.ep.direct == nil && l.ep.poller.parked.Load() == 0 && !l.ep.hooked()
}

// lend leaves the reader to pollers until they give it back or are gone.
func (l *link) lend() {
	b := &l.in.lending
	l.mu.Lock()
	b.lent.Store(true)
	l.mu.Unlock()
	if l.ep.poller.parked.Load() > 0 { // since a moment, and may not have seen the loan
		l.reclaim()
		return
	}
	l.lowWater(lentLowWater)
	if b.timer == nil {
		b.timer = time.NewTimer(takeBack)
	} else {
		b.timer.Reset(takeBack)
	}
	for seen, over := l.ep.poller.looks.Load(), false; !over; {
		select {
		case <-b.back:
			over = true
		case <-l.ep.fate.over:
			over = true
		case <-b.timer.C:
			now := l.ep.poller.looks.Load()
			over = now == seen
			seen = now
			b.timer.Reset(takeBack)
		}
	}
	b.timer.Stop()
	l.reclaim()
	l.lowWater(1)
}

// reclaim ends the loan; what is left to send is the writer's.
func (l *link) reclaim() {
	l.mu.Lock()
	l.in.lent.Store(false)
	parked := l.parked
	l.parked = false
	l.mu.Unlock()
	if parked {
		l.handOver()
	}
}

// lowWater is the least that makes the socket readable. It is no more than a hint, and other sockets than TCP do not take it.
func (l *link) lowWater(n int) {
	_ = syscall.SetsockoptInt(l.fd, syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n)
}

// giveBack makes the goroutine take the link back.
func (b *lending) giveBack() {
	select {
	case b.back <- struct{}{}:
	default:
	}
}

// park leaves what the socket does not take now to pollers, or reports that there are none.
func (l *link) park() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parked = l.in.lent.Load()
	return l.parked
}

// unpark takes it up again.
func (l *link) unpark() {
	l.mu.Lock()
	parked := l.parked
	l.parked = false
	l.mu.Unlock()
	if parked {
		l.pump(true)
	}
}

// hooked reports whether a queue has a hook: that may look into the queue with locks held which a reader takes.
func (ep *Endpoint) hooked() bool { return ep.queues.Tx.Hooked() || ep.queues.Rx.Hooked() }

// Drain takes what arrived on a link that is lent; see util.Source.
func (p *poller) Drain() {
	ep := p.ep
	n := p.looks.Add(1)
	l := ep.links[0]
	if !l.in.lent.Load() && n%coldLook != 0 || !ep.fate.enter() {
		return
	}
	defer ep.fate.leave()
	if ep.hooked() {
		l.in.giveBack()
		return
	}
	if !l.in.mu.TryLock() {
		return
	}
	l.look()
	l.in.mu.Unlock()
	l.unpark()
}

// look turns the reader. With its mu held.
func (l *link) look() {
	in := &l.in
	in.got, in.drained = false, false
	err := l.turn()
	lent := in.lent.Load()
	switch {
	case lent && err != errWait:
		in.giveBack() // the goroutine finds the same
	case !lent:
		l.kick()
	case in.got:
		in.cold = 0
	default:
		l.kick() // answers that nothing took along
		if in.cold++; in.cold >= coldPolls {
			in.cold = 0
			in.giveBack()
		}
	}
}

// Arm takes the link back from a program that is about to park; see util.Source.
func (p *poller) Arm(parking bool) {
	if !parking {
		p.parked.Add(-1)
		return
	}
	p.parked.Add(1)
	if l := p.ep.links[0]; l.in.lent.Load() {
		l.in.giveBack()
	}
}

// watchQueues lets who reads the completion queues poll.
func (ep *Endpoint) watchQueues() {
	ep.queues.Tx.AddSource(&ep.poller)
	if ep.queues.Rx != ep.queues.Tx {
		ep.queues.Rx.AddSource(&ep.poller)
	}
}

func (ep *Endpoint) unwatchQueues() {
	ep.queues.Tx.RemoveSource(&ep.poller)
	ep.queues.Rx.RemoveSource(&ep.poller)
}
