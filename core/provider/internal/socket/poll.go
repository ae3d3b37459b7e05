// SPDX-License-Identifier: MIT

package socket

import (
	"sync/atomic"
	"syscall"
	"time"

	"mori/core/fabric/util"
)

// A program that polls its completion queue has a processor that can read the socket, too: no other
// thread has to be woken for a message, and no reply needs its own packet, because it travels with
// the program's next submission. So the goroutine of socket 0 hands its reader, and what is left to
// send, to the caller of CQ.Read, as long as a program polls and messages arrive. It takes them
// back when a program parks in CQ.Wait, when nobody has polled for takeBack, and when nothing
// arrived for coldPolls polls. Of the polls of a stream that the goroutine keeps, only one in
// coldLook makes a system call, for programs that leave the goroutine no processor.
//
// Half of a round trip between two processes on 2 cores, read by the poller and by goroutines
// alone: 64 B 5.9 and 97 to 134 µs, 64 KiB 20 and 124 µs, 1 MiB 195 and 770 µs. fi_pingpong on
// libfabric's tcp: 5.4, 22 and 202 µs, on tcp;ofi_rxm: 10, 57 and 240 µs.
const (
	// warmPolls is how many looks between two waits of the reader make it lend.
	warmPolls = 16
	// coldPolls is after how many looks without a byte it has the stream back.
	coldPolls = 20_000
	// coldLook is the number of polls, of a stream that its goroutine keeps, per system call.
	coldLook = 128
	// takeBack is how long what arrives can lie when a program stops looking.
	takeBack = time.Millisecond
	// lentLowWater makes the socket wake Go's poller only for more bytes while pollers own the
	// reader. 64 KiB to 4 MiB made no difference.
	lentLowWater = 1 << 20
)

// A lending is the part of a reader that has to do with pollers.
type lending struct {
	lent  atomic.Bool // changes with Stream.mu held
	seen  uint64      // polls when the goroutine waited last
	cold  int         // looks without a byte
	back  chan struct{}
	timer *time.Timer
}

func (b *lending) init() { b.back = make(chan struct{}, 1) }

// A Poller lets programs that read completion queues over and over read a stream; see util.Source.
type Poller struct {
	stream *Stream
	queues [2]*util.CQ
	users  Users
	looks  atomic.Uint64
	parked atomic.Int32 // readers of the queues that are parked: they must not have to wait for a look
}

var _ util.Source = (*Poller)(nil)

// Users counts those who use a connection. Enter reports false once the connection has ended.
type Users interface {
	Enter() bool
	Leave()
}

// Poll makes the readers of two queues, which may be the same, read s. It comes before Read.
func Poll(s *Stream, tx, rx *util.CQ, users Users) *Poller {
	p := &Poller{stream: s, queues: [2]*util.CQ{tx, rx}, users: users}
	s.in.poller = p
	tx.AddSource(p)
	if rx != tx {
		rx.AddSource(p)
	}
	return p
}

// Stop takes the poller out of its queues.
func (p *Poller) Stop() {
	for _, q := range p.queues {
		q.RemoveSource(p)
	}
}

// hooked reports whether a queue has a hook, which may read the queue under locks that a reader
// takes.
func (p *Poller) hooked() bool { return p.queues[0].Hooked() || p.queues[1].Hooked() }

// mayLend reports whether somebody polls, and nobody is parked. With the reader's mu held.
func (in *reader) mayLend() bool {
	p := in.poller
	if p == nil {
		return false
	}
	n := p.looks.Load()
	warm := n-in.seen >= warmPolls
	in.seen = n
	return warm && p.parked.Load() == 0 && !p.hooked()
}

// lend leaves the reader to pollers until they give it back or are gone.
func (in *reader) lend() {
	b := &in.lending
	in.s.mu.Lock()
	b.lent.Store(true)
	in.s.mu.Unlock()
	if in.poller.parked.Load() > 0 { // it parked just now, and may not have seen that pollers read
		in.reclaim()
		return
	}
	in.lowWater(lentLowWater)
	if b.timer == nil {
		b.timer = time.NewTimer(takeBack)
	} else {
		b.timer.Reset(takeBack)
	}
	for seen, over := in.poller.looks.Load(), false; !over; {
		select {
		case <-b.back:
			over = true
		case <-in.s.env.Over:
			over = true
		case <-b.timer.C:
			now := in.poller.looks.Load()
			over = now == seen
			seen = now
			b.timer.Reset(takeBack)
		}
	}
	b.timer.Stop()
	in.reclaim()
	in.lowWater(1)
}

// reclaim takes the reader back. What is left to send is the writer's.
func (in *reader) reclaim() {
	in.s.mu.Lock()
	in.lent.Store(false)
	parked := in.s.parked
	in.s.parked = false
	in.s.mu.Unlock()
	if parked {
		in.s.handOver()
	}
}

// lowWater is the least that makes the socket readable. It is no more than a hint, and other
// sockets than TCP do not take it.
func (in *reader) lowWater(n int) {
	_ = syscall.SetsockoptInt(in.s.fd, syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n)
}

// giveBack makes the goroutine take the stream back.
func (b *lending) giveBack() {
	select {
	case b.back <- struct{}{}:
	default:
	}
}

// park leaves what the socket does not take now to pollers, or reports that it has none.
func (s *Stream) park() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = s.in.lent.Load()
	return s.parked
}

// unpark takes it up again.
func (s *Stream) unpark() {
	s.mu.Lock()
	parked := s.parked
	s.parked = false
	s.mu.Unlock()
	if parked {
		s.out.pump(true)
	}
}

// Drain reads what arrived on a stream whose reader pollers own; see util.Source.
func (p *Poller) Drain() {
	n := p.looks.Add(1)
	in := &p.stream.in
	if !in.lent.Load() && n%coldLook != 0 || !p.users.Enter() {
		return
	}
	defer p.users.Leave()
	if p.hooked() {
		in.giveBack()
		return
	}
	if !in.mu.TryLock() {
		return
	}
	in.look()
	in.mu.Unlock()
	p.stream.unpark()
}

// look turns the reader. With its mu held.
func (in *reader) look() {
	in.got, in.drained = false, false
	err := in.turn()
	lent := in.lent.Load()
	switch {
	case lent && err != ErrWait:
		in.giveBack() // the goroutine finds the same
	case !lent:
		in.s.Kick()
	case in.got:
		in.cold = 0
	default:
		in.s.Kick() // answers that nothing took along
		if in.cold++; in.cold >= coldPolls {
			in.cold = 0
			in.giveBack()
		}
	}
}

// Arm takes the stream back from a program that is about to park; see util.Source.
func (p *Poller) Arm(parking bool) {
	if !parking {
		p.parked.Add(-1)
		return
	}
	p.parked.Add(1)
	if in := &p.stream.in; in.lent.Load() {
		in.giveBack()
	}
}

// Lent reports whether pollers own the reader of s now.
func (s *Stream) Lent() bool { return s.in.lent.Load() }
