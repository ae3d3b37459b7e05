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
	"mori/core/provider/shm/internal/ring"
)

// A dataPath moves the payload of one endpoint's reads and writes between the memories of the two
// processes. It grants the peer access to this side's regions, and carries messages and remote data
// through the rings. It is a conn.DataPath.
//
// An op: RMA finds the grant of its region, or requests it and parks the op on it (grants.go).
// start copies a small op at once if its pages are in memory (copies.now). It passes other ops to
// the pool, because a page fault may block for as long as the memory's owner likes. copies does the
// copying (copy.go). notifier puts remote data into the ring (notify.go). Then the endpoint
// finishes the op.
//
// A message: outbox puts it or its segments into the peer's ring. The peer's inbox takes it out,
// copies what is not in the ring from our memory, and answers (inbox.go, incoming.go, pull.go,
// answer.go).
type dataPath struct {
	ep     endpoint
	domain *domain
	greet  *greeting
	log    *slog.Logger
	device bool // ops may use device memory, which goes through the stream

	ops      local.Gate // ops between RMA and Port.Finish
	stopping atomic.Bool
	queued   atomic.Int64 // ops in the pool

	mu     sync.Mutex
	parked map[*regionGrant][]parkedOp // ops that wait for a requested grant
	cause  error                       // why the path stopped

	out      grant.Sender
	holder   grant.Holder[site]
	granter  grant.Granter
	jobs     jobs
	copies   copies
	notifier notifier
	outbox   outbox
	inbox    inbox
}

// endpoint is the part of conn.Port that a dataPath uses.
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

// vmCalls are the system calls that copy between processes; tests replace them.
type vmCalls struct {
	read, write func(pid int, local, remote []sys.Iovec) (int, error)
}

var _ conn.DataPath = (*dataPath)(nil)

func newDataPath(ep endpoint, g *greeting, opts *Options) *dataPath {
	dp := &dataPath{ep: ep, greet: g, log: opts.Log, parked: make(map[*regionGrant][]parkedOp)}
	dp.initGrants()
	dp.jobs.path = dp
	dp.copies.path, dp.copies.vm, dp.copies.sample.every = dp, opts.vm(), opts.Sample
	dp.notifier.path, dp.outbox.path = dp, dp
	out, in := sys.AddrOf(g.outbound), sys.AddrOf(g.inbound)
	dp.notifier.ring, dp.outbox.ring = ring.NewWriter(out, ring.Notices), ring.NewMessageWriter(out)
	b := &dp.inbox
	b.path, b.cq, b.tx, b.feed = dp, ep.RecvCQ(), ep.SendCQ(), ep.Feed()
	b.notices, b.messages = ring.NewReader(in, ring.Notices), ring.NewMessageReader(in)
	b.answers, b.replies = ring.NewReader(in, ring.Answers), ring.NewWriter(out, ring.Answers)
	return dp
}

// Frame handles the peer's extension frames; see conn.DataPath.
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

// Changed receives messages that may have a receive now; see conn.MessagePath.
func (dp *dataPath) Changed() { dp.inbox.serve() }

// Placed is never called, because the path delivers no message with a token.
func (dp *dataPath) Placed(uint64) {}

// send sends a frame. If a megabyte of frames is queued, the peer counts as dead.
func (dp *dataPath) send(kind uint8, body []byte) {
	if err := dp.ep.SendFrame(kind, body); err != nil && !dp.stopping.Load() {
		dp.ep.Fail(fmt.Errorf("send shm frame of kind %d: %w", kind, err))
	}
}

// Describe returns how bytes move; see conn.DataPath.
func (dp *dataPath) Describe() (name, reason string) {
	return wayText[dp.greet.reach.way], dp.greet.reach.reason
}

func (dp *dataPath) stopCause() error {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	return dp.cause
}
