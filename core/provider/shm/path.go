// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
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

// A dataPath moves the payload of one endpoint's reads and writes between the two processes'
// memories, grants the peer access to this side's regions, and carries messages and remote data
// through the rings. It is a conn.DataPath.
//
// An op: RMA finds the grant of its region, or asks for it and parks the op on it (grants.go).
// start copies a small op at once if its pages are in memory (job.copyNow). It gives others to the
// pool, since a page that is missing may take as long as the memory's owner likes. copies does the
// copying (copy.go). notifier puts remote data into the ring (notify.go); the endpoint finishes the
// op.
//
// A message: outbox puts it or its segments into the ring; inbox at the peer takes it out, gets
// what is not in the ring from our memory, and answers (inbox.go, incoming.go, pull.go, answer.go).
type dataPath struct {
	ep     endpoint
	domain *domain
	greet  *greeting
	log    *slog.Logger
	device bool // ops may be on device memory, which goes through the stream

	ops      local.Gate // ops between RMA and the stream's Finish
	stopping atomic.Bool
	queued   atomic.Int64 // ops in the pool

	mu     sync.Mutex
	parked map[*regionGrant][]parkedOp // ops that wait for the answer to a request for a grant
	free   *job
	cause  error // why it stopped

	out      grant.Sender
	holder   grant.Holder[site]
	granter  grant.Granter
	copies   copies
	notifier notifier
	outbox   outbox
	inbox    inbox
}

// endpoint is what a dataPath needs of a conn.Port.
type endpoint interface {
	Finish(t conn.Ticket, err error)
	HandBack(t conn.Ticket)
	SendFrame(kind uint8, body []byte) error
	Fail(err error)
	Peer() fabric.Addr
	RecvCQ() *util.CQ
	SendCQ() *util.CQ
	Feed() *receive.Feed
	Source() fabric.AVAddr
}

// vmCalls are the copies between processes; tests replace them.
type vmCalls struct {
	read, write func(pid int, local, remote []sys.Iovec) (int, error)
}

var _ conn.DataPath = (*dataPath)(nil)

func newDataPath(ep endpoint, g *greeting, opts *Options) *dataPath {
	dp := &dataPath{ep: ep, greet: g, log: opts.Log, parked: make(map[*regionGrant][]parkedOp)}
	dp.initGrants()
	dp.copies.path, dp.copies.vm, dp.copies.sample.every = dp, opts.vm(), opts.Sample
	dp.notifier.path, dp.outbox.path = dp, dp
	out, in := sys.AddrOf(g.outbound), sys.AddrOf(g.inbound)
	dp.notifier.ring.mem, dp.outbox.ring.mem = out, out
	b := &dp.inbox
	b.path, b.cq, b.tx, b.feed = dp, ep.RecvCQ(), ep.SendCQ(), ep.Feed()
	b.notices.mem, b.messages.mem = in, in
	b.answers, b.replies = ringReader{mem: in, ring: answerRing}, ringWriter{mem: out, ring: answerRing}
	return dp
}

// RMA takes an op over; see conn.DataPath.
func (dp *dataPath) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if dp.greet.reach.way == wayStream || op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite {
		return false
	}
	if dp.device && staging.OnDevice(op) {
		return false
	}
	if !dp.ops.Enter() {
		dp.ep.Finish(t, dp.stopCause())
		return true
	}
	l := dp.findGrant(t, op, key)
	switch {
	case l == nil:
	case l.Refused == fabric.ErrNotSupported:
		dp.ops.Leave()
		return false
	case l.Refused != 0:
		dp.finish(t, dp.refusal(l))
	default:
		dp.start(t, op, l, true)
	}
	return true
}

// start begins an op whose region is granted. With inline it may copy on the caller's thread.
func (dp *dataPath) start(t conn.Ticket, op *fabric.Op, l *regionGrant, inline bool) {
	if err := grant.Check(op, l.Key.ID, l.Region.access, l.Region.size); err != nil {
		dp.end(t, op, l, err)
		return
	}
	n := op.Len()
	if n == 0 {
		dp.end(t, op, l, dp.copies.touch(l))
		return
	}
	j := dp.newJob()
	j.ticket, j.op, j.grant, j.walk = t, op, l, newWalk(op, n, l.Region.base)
	small := n <= inlineBytes && max(len(op.More), len(op.RMore)) < inlineSegments
	if first := dp.queued.Add(1) == 1; inline && small && first && j.copyNow(dp.greet) {
		return
	}
	dp.domain.pool.add(j)
}

// finishJob is the pool's report.
func (dp *dataPath) finishJob(j *job, err error) {
	if j.grant == nil {
		dp.finishPull(j, err)
		return
	}
	t, op, l := j.ticket, j.op, j.grant
	err = dp.copies.sampled(op, op.Len(), l, err)
	dp.freeJob(j)
	dp.queued.Add(-1)
	dp.end(t, op, l, err)
}

// end finishes an op, for good or, if its remote data has to wait for room in the ring, for now.
func (dp *dataPath) end(t conn.Ticket, op *fabric.Op, l *regionGrant, err error) {
	if err == nil && op.Kind == fabric.OpWrite && op.Flags&fabric.OpRemoteData != 0 {
		dp.notifier.announce(t, op, l)
		return
	}
	dp.finish(t, err)
}

// finish hands the op back to the stream, which may start others meanwhile. No lock is held.
func (dp *dataPath) finish(t conn.Ticket, err error) {
	dp.ep.Finish(t, err)
	dp.ops.Leave()
}

func (dp *dataPath) newJob() *job {
	dp.mu.Lock()
	j := dp.free
	if j != nil {
		dp.free, j.next = j.next, nil
	}
	dp.mu.Unlock()
	if j == nil {
		j = &job{path: dp}
	}
	return j
}

// freeJob keeps j for reuse, unless a worker still has it.
func (dp *dataPath) freeJob(j *job) {
	if j.abandoned {
		return
	}
	*j = job{path: dp}
	dp.mu.Lock()
	j.next, dp.free = dp.free, j
	dp.mu.Unlock()
}

// Frame takes the peer's extension frames; see conn.DataPath.
func (dp *dataPath) Frame(kind uint8, body []byte) error {
	switch kind {
	case frameWake:
		dp.inbox.serve()
		return nil
	case frameSpace:
		dp.notifier.flush()
		dp.outbox.flush()
		return nil
	}
	return grant.OnFrame(&dp.granter, &dp.holder, kind, body)
}

// Changed looks for messages that may have a receive now; see conn.MessagePath.
func (dp *dataPath) Changed() { dp.inbox.serve() }

// Placed is not called: no message is delivered with a token.
func (dp *dataPath) Placed(uint64) {}

// send sends a frame; a peer that lets a megabyte of them pile up is not alive.
func (dp *dataPath) send(kind uint8, body []byte) {
	if err := dp.ep.SendFrame(kind, body); err != nil && !dp.stopping.Load() {
		dp.ep.Fail(fmt.Errorf("send shm frame of kind %d: %w", kind, err))
	}
}

// Describe says how bytes move; see conn.DataPath.
func (dp *dataPath) Describe() (name, reason string) {
	return wayText[dp.greet.reach.way], dp.greet.reach.reason
}

func (dp *dataPath) stopCause() error {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	return dp.cause
}
