// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/staging"
)

// RMA copies an op on its caller's thread if nothing is queued before it, all its pages are in
// memory and it is at most this large. A worker takes about 12 us to begin. A copy of 64 KiB takes
// 7 us, an entry of its own page 0.4 us, and the check of a segment's pages 0.4 us here and 0.9 us
// in the peer.
const (
	inlineBytes    = 64 << 10
	inlineSegments = 8
	minPage        = 4096
)

// A mover moves the payload of one endpoint's reads and writes between the two processes' memories, lends this side's
// regions to the peer, and carries messages and remote data through the rings. It is a conn.DataPath.
//
// An op: RMA finds the grant of its region, or asks for it and parks the op on it (loan.go).
// start copies a small op at once if its pages are in memory (job.copyNow). It gives others to the
// pool, since a page that is missing may take as long as the memory's owner likes. announce puts
// remote data into the ring (notify.go); the endpoint finishes the op.
//
// A message: Send puts it or its segments into the ring (outbox.go); the peer takes it out, gets what is not in the ring from our
// memory, and answers (inbox.go, incoming.go, pull.go, answer.go).
type mover struct {
	ep     endpoint
	domain *domain
	greet  *greeting
	log    *slog.Logger
	device bool // ops may be on device memory, which goes through the stream
	vm     vmCalls

	ops      local.Gate // ops between RMA and the stream's Finish
	stopping atomic.Bool
	sample   struct { // see sample.go
		every uint64
		ops   atomic.Uint64
	}
	queued atomic.Int64 // ops in the pool

	mu     sync.Mutex
	parked map[*borrowed][]parkedOp // ops that wait for the answer to a loan
	free   *job
	cause  error // why it stopped

	out      grant.Sender
	borrower grant.Holder[site]
	lender   grant.Granter
	notifier notifier
	outbox   outbox
	inbox    inbox
}

// endpoint is what a mover needs of *conn.Endpoint.
type endpoint interface {
	Finish(t conn.Ticket, err error)
	HandBack(t conn.Ticket)
	SendFrame(kind uint8, body []byte) error
	Fail(err error)
	Peer() fabric.Addr
	RecvCQ() *util.CQ
	SendCQ() *util.CQ
	Feed() *util.Feed
	Source() fabric.AVAddr
}

// vmCalls are the copies between processes; tests replace them.
type vmCalls struct {
	read, write func(pid int, local, remote []sys.Iovec) (int, error)
}

var _ conn.DataPath = (*mover)(nil)

func newMover(ep endpoint, g *greeting, opts *Options) *mover {
	m := &mover{ep: ep, greet: g, log: opts.Log, vm: opts.vm(), parked: make(map[*borrowed][]parkedOp)}
	m.initLoans()
	m.sample.every = opts.Sample
	out, in := sys.AddrOf(g.outbound), sys.AddrOf(g.inbound)
	m.notifier.ring.mem, m.outbox.ring.mem = out, out
	b := &m.inbox
	b.mover, b.cq, b.tx, b.feed = m, ep.RecvCQ(), ep.SendCQ(), ep.Feed()
	b.notices.mem, b.messages.mem = in, in
	b.answers, b.replies = ringReader{mem: in, ring: answerRing}, ringWriter{mem: out, ring: answerRing}
	return m
}

// RMA takes an op over; see conn.DataPath.
func (m *mover) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if m.greet.reach.way == wayStream || op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite {
		return false
	}
	if m.device && staging.OnDevice(op) {
		return false
	}
	if !m.ops.Enter() {
		m.ep.Finish(t, m.stopCause())
		return true
	}
	l := m.findLoan(t, op, key)
	switch {
	case l == nil:
	case l.Refused == fabric.ErrNotSupported:
		m.ops.Leave()
		return false
	case l.Refused != 0:
		m.finish(t, m.refusal(l))
	default:
		m.start(t, op, l, true)
	}
	return true
}

// start begins an op whose region is granted. With inline it may copy on the caller's thread.
func (m *mover) start(t conn.Ticket, op *fabric.Op, l *borrowed, inline bool) {
	if err := grant.Check(op, l.Key.ID, l.Region.access, l.Region.size); err != nil {
		m.end(t, op, l, err)
		return
	}
	n := op.Len()
	if n == 0 {
		m.end(t, op, l, m.touch(l))
		return
	}
	j := m.newJob()
	j.ticket, j.op, j.loan, j.walk = t, op, l, newWalk(op, n, l.Region.base)
	small := n <= inlineBytes && max(len(op.More), len(op.RMore)) < inlineSegments
	if first := m.queued.Add(1) == 1; inline && small && first && j.copyNow(m.greet) {
		return
	}
	m.domain.pool.add(j)
}

// finishJob is the pool's report.
func (m *mover) finishJob(j *job, err error) {
	if j.loan == nil {
		m.finishPull(j, err)
		return
	}
	t, op, l := j.ticket, j.op, j.loan
	err = m.sampled(op, op.Len(), l, err)
	m.freeJob(j)
	m.queued.Add(-1)
	m.end(t, op, l, err)
}

// end finishes an op, for good or, if its remote data has to wait for room in the ring, for now.
func (m *mover) end(t conn.Ticket, op *fabric.Op, l *borrowed, err error) {
	if err == nil && op.Kind == fabric.OpWrite && op.Flags&fabric.OpRemoteData != 0 {
		m.announce(t, op, l)
		return
	}
	m.finish(t, err)
}

// finish hands the op back to the stream, which may start others meanwhile. No lock is held.
func (m *mover) finish(t conn.Ticket, err error) {
	m.ep.Finish(t, err)
	m.ops.Leave()
}

func (m *mover) newJob() *job {
	m.mu.Lock()
	j := m.free
	if j != nil {
		m.free, j.next = j.next, nil
	}
	m.mu.Unlock()
	if j == nil {
		j = &job{mover: m}
	}
	return j
}

// freeJob keeps j for reuse, unless a worker still has it.
func (m *mover) freeJob(j *job) {
	if j.abandoned {
		return
	}
	*j = job{mover: m}
	m.mu.Lock()
	j.next, m.free = m.free, j
	m.mu.Unlock()
}

// Frame takes the peer's extension frames; see conn.DataPath.
func (m *mover) Frame(kind uint8, body []byte) error {
	switch kind {
	case frameWake:
		m.inbox.serve()
		return nil
	case frameSpace:
		m.flush()
		m.flushMessages()
		return nil
	}
	return grant.OnFrame(&m.lender, &m.borrower, kind, body)
}

// Changed looks for messages that may have a receive now; see conn.MessagePath.
func (m *mover) Changed() { m.inbox.serve() }

// Placed is not called: no message is delivered with a token.
func (m *mover) Placed(uint64) {}

// send sends a frame; a peer that lets a megabyte of them pile up is not alive.
func (m *mover) send(kind uint8, body []byte) {
	if err := m.ep.SendFrame(kind, body); err != nil && !m.stopping.Load() {
		m.ep.Fail(fmt.Errorf("send shm frame of kind %d: %w", kind, err))
	}
}

// Describe says how bytes move; see conn.DataPath.
func (m *mover) Describe() (name, reason string) {
	return wayText[m.greet.reach.way], m.greet.reach.reason
}

func (m *mover) stopCause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause
}
