// SPDX-License-Identifier: MIT

package socket

import (
	"sync/atomic"
	"syscall"
	"time"

	"mori/core/fabric/util"
)

// A program that polls its completion queue can also read the socket. Then no other thread must be
// woken for a message, and a reply needs no packet of its own: it travels with the program's next
// submission. So the goroutine of socket 0 lends its reader and its unsent frames to the callers of
// CQ.Read while a program polls and messages arrive. It takes them back when a program parks in
// CQ.Wait, when no program has polled for takeBack, or when nothing arrived in coldPolls polls.
// While the goroutine keeps the stream, only one poll in coldLook makes a system call, for programs
// that leave the goroutine no CPU time.
//
// Half a round trip between two processes on 2 cores, in µs:
//
//	                            64 B       64 KiB  1 MiB
//	read by the poller          5.9        20      195
//	read by goroutines alone    97 to 134  124     770
//	fi_pingpong on tcp          5.4        22      202
//	fi_pingpong on tcp;ofi_rxm  10         57      240
const (
	// warmPolls is how many polls between two waits of the reader make it lend the stream.
	warmPolls = 16
	// coldPolls is after how many polls without a byte the goroutine takes the stream back.
	coldPolls = 20_000
	// coldLook is how many polls make one system call while the goroutine keeps the stream.
	coldLook = 128
	// takeBack bounds how long bytes may stay unread after a program stops polling.
	takeBack = time.Millisecond
	// lentLowWater is the low-water mark of the socket while pollers own the reader: the socket
	// wakes Go's poller only for more bytes. 64 KiB to 4 MiB made no difference.
	lentLowWater = 1 << 20
)

// A lending is the part of a reader that handles pollers.
type lending struct {
	lent  atomic.Bool // changes with Stream.mu held
	seen  uint64      // polls counted at the goroutine's last wait
	cold  int         // polls without a byte
	back  chan struct{}
	timer *time.Timer
}

func (b *lending) init() { b.back = make(chan struct{}, 1) }

// A Poller lets programs that poll completion queues read a stream; see util.Source.
type Poller struct {
	stream *Stream
	queues [2]*util.CQ
	users  Users
	looks  atomic.Uint64
	parked atomic.Int32 // parked readers of the queues, which must not have to wait for a poll
}

var _ util.Source = (*Poller)(nil)

// Users counts the users of a connection. Enter returns false once the connection has ended.
type Users interface {
	Enter() bool
	Leave()
}

// Poll lets the readers of two queues, which may be the same, read s. Call it before Read.
func Poll(s *Stream, tx, rx *util.CQ, users Users) *Poller {
	p := &Poller{stream: s, queues: [2]*util.CQ{tx, rx}, users: users}
	s.in.poller = p
	tx.AddSource(p)
	if rx != tx {
		rx.AddSource(p)
	}
	return p
}

// Stop removes the poller from its queues.
func (p *Poller) Stop() {
	for _, q := range p.queues {
		q.RemoveSource(p)
	}
}

// hooked reports whether a queue has a hook. A hook may read the queue while it holds locks that a
// reader takes.
func (p *Poller) hooked() bool { return p.queues[0].Hooked() || p.queues[1].Hooked() }

// mayLend reports whether a program polls and no reader of the queues is parked. The caller holds
// the reader's mu.
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

// lend lends the reader to pollers until they give it back or stop polling.
func (in *reader) lend() {
	b := &in.lending
	in.s.mu.Lock()
	b.lent.Store(true)
	in.s.mu.Unlock()
	if in.poller.parked.Load() > 0 { // it parked just now, unaware that pollers read
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

// reclaim takes the reader back. The writer sends what is left.
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

// lowWater sets how many bytes make the socket readable. It is only a hint; sockets other than TCP
// ignore it.
func (in *reader) lowWater(n int) {
	_ = syscall.SetsockoptInt(in.s.fd, syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n)
}

// giveBack makes the goroutine reclaim the stream.
func (b *lending) giveBack() {
	select {
	case b.back <- struct{}{}:
	default:
	}
}

// park leaves the bytes that the socket does not accept now to pollers. It returns false if no
// poller owns the reader.
func (s *Stream) park() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = s.in.lent.Load()
	return s.parked
}

// unpark continues to send what park left.
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

// look reads what arrived. The caller holds the reader's mu.
func (in *reader) look() {
	in.got, in.drained = false, false
	err := in.turn()
	lent := in.lent.Load()
	switch {
	case lent && err != ErrWait:
		in.giveBack() // the goroutine will get the same error
	case !lent:
		in.s.Kick()
	case in.got:
		in.cold = 0
	default:
		in.s.Kick() // send the answers that no submission took along
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
