// SPDX-License-Identifier: MIT

package verbs

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/pathbase"
)

// A dataPath moves the payload of one endpoint's reads and writes by the NICs, and grants the peer
// access to this side's regions. It is a conn.DataPath.
//
// An op: RMA begins it if all that it needs is known, else a goroutine waits for that (begin.go):
// the rails (setup.go), the grant of the remote region, and the local region's registration
// (register.go). Its work requests are posted to queue pairs (pair.go), whose completions a
// goroutine of each rail takes (rail.go). What NICs cannot do is handed back to the stream.
type dataPath struct {
	pathbase.Base

	ep     endpoint
	domain *domain
	all    *domains
	log    *slog.Logger
	within time.Duration // how long a peer or a device is waited for
	member pathbase.Member
	dialed bool // and offers rails

	setup sync.WaitGroup // goroutines that set rails up
	gone  chan struct{}  // closed when rails close
	ready chan struct{}  // closed when the rails are up
	next  atomic.Uint32  // which queue pair is next for short ops

	mu    sync.Mutex
	rails []*rail // set before ready closes
	asked bool    // an offer or an answer came
	wired bool    // an answer was sent: the peer may say that it is up

	// Set before ready closes.
	pairs             []*pair // of all rails
	maxInline, maxRun uint64  // bytes of a write without registered memory, and of a work request

	numbers atomic.Uint32 // of ops with remote data
	notices notices
	pending pathbase.Pending[flight] // ops from RMA to their end
	out     grant.Sender
	holder  grant.Holder[place]
	granter grant.Granter
}

// endpoint is what a dataPath needs of a conn.Port.
type endpoint interface {
	Finish(t conn.Ticket, err error)
	Forward(t conn.Ticket)
	HandBack(t conn.Ticket)
	SendFrame(kind uint8, body []byte) error
	AddWire(w conn.Wire)
	WireRoom()
	WireCame()
	Fail(err error)
	FailWith(err error, kind uint8, body []byte)
	Peer() fabric.Addr
	RecvCQ() *util.CQ
	Source() fabric.AVAddr
}

var _ conn.DataPath = (*dataPath)(nil)

func newDataPath(ep endpoint, all *domains, table *regions.Table) *dataPath {
	dp := &dataPath{
		ep: ep, all: all, log: all.opts.Log, within: all.opts.releaseWait,
		gone: make(chan struct{}), ready: make(chan struct{}),
	}
	dp.InitBase()
	dp.notices.path = dp
	dp.out.Send = dp.send
	dp.holder.Parse, dp.holder.Out = dp.parsePlace, &dp.out
	dp.granter.Table, dp.granter.Describe, dp.granter.Out = table, dp.describe, &dp.out
	dp.member = pathbase.Member{Path: dp, Conn: ep, Given: &dp.granter, Holds: dp.holds}
	return dp
}

// RMA takes an op over; see conn.DataPath.
func (dp *dataPath) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite || op.Seg.Len == 0 && op.Len() == 0 {
		return false
	}
	if !dp.Ops.Enter() {
		dp.ep.Finish(t, dp.Cause())
		return true
	}
	f := dp.newFlight(t, op)
	switch dp.begin(f, key, false) {
	case begun:
	case byStream:
		dp.freeFlight(f)
		dp.Ops.Leave()
		return false
	case notYet:
		go dp.beginLater(f, key)
	}
	return true
}

// beginLater waits for what RMA did not wait for.
func (dp *dataPath) beginLater(f *flight, key fabric.RegionKey) {
	if dp.begin(f, key, true) == byStream {
		t := f.ticket
		dp.freeFlight(f)
		dp.ep.HandBack(t)
		dp.Ops.Leave()
	}
}

// landed ends an op whose work requests have all ended.
func (dp *dataPath) landed(f *flight) {
	if f.wire != nil {
		f.wire.sent(f)
		return
	}
	if err := f.fault.Load(); err != nil {
		dp.end(f, *err)
		return
	}
	var err error
	if f.spare.of != nil && f.op.Kind == fabric.OpRead {
		err = dp.deliver(f)
	}
	dp.end(f, err)
}

// end finishes an op.
func (dp *dataPath) end(f *flight, err error) {
	t, notify := f.ticket, f.hasNotice() && !f.announced
	dp.freeFlight(f)
	if err == nil && notify {
		dp.ep.Forward(t)
	} else {
		dp.ep.Finish(t, err)
	}
	dp.Ops.Leave()
}

// Messages are the stream's, which has the wire for them.

// Frame takes the peer's extension frames; see conn.DataPath.
func (dp *dataPath) Frame(kind uint8, body []byte) error {
	switch kind {
	case frameOffer:
		return dp.onOffer(body)
	case frameAnswer:
		return dp.onAnswer(body)
	case frameUp:
		return dp.onUp()
	case frameCredit:
		return dp.onCredit(body)
	case frameNoRails:
		return dp.onNoRails(body)
	}
	return grant.OnFrame(&dp.granter, &dp.holder, kind, body)
}

// describe is what the peer needs to reach a region here.
func (dp *dataPath) describe(mr *regions.MR) ([]byte, error) {
	if !dp.awaitRails() {
		return nil, fabric.ErrNotConn
	}
	g := dp.domain.registrationOf(mr, true)
	if g == nil {
		return nil, fabric.ErrNoKey
	}
	defer g.use.Leave()
	if g.err != nil {
		dp.slow(fmt.Errorf("%w: %w", errStream, g.err))
		return nil, fabric.ErrNotSupported
	}
	if !dp.isKnown(g) {
		return nil, fabric.ErrNotSupported // the connection is ending
	}
	p := g.place(mr, dp.rails)
	return p.encode(), nil
}

// parsePlace reads what the peer says of its region, for as many rails as there are.
func (dp *dataPath) parsePlace(b []byte) (place, error) {
	p, err := parsePlace(b)
	if !dp.isReady() {
		return p, fmt.Errorf("grant before the rails are up: %w", fabric.ErrProtocol)
	}
	if err == nil && len(p.keys) != len(dp.rails) {
		return p, fmt.Errorf("grant for %d rails of %d: %w", len(p.keys), len(dp.rails), fabric.ErrProtocol)
	}
	return p, err
}

// awaitRails reports whether the rails came up.
func (dp *dataPath) awaitRails() bool {
	select {
	case <-dp.ready:
		return true
	case <-dp.Stopped:
		return false
	}
}

// send sends a frame; a peer that lets a megabyte of them pile up is not alive.
func (dp *dataPath) send(kind uint8, body []byte) {
	dp.Base.Send(dp.ep, "verbs", kind, body)
}

// isGone reports whether the rails are closing.
func (dp *dataPath) isGone() bool {
	select {
	case <-dp.gone:
		return true
	default:
		return false
	}
}

// slow notes why an op goes by TCP. The log has the first reason.
func (dp *dataPath) slow(why error) {
	if dp.Slow(why) {
		dp.log.Info("verbs: an op uses TCP, which is slower", "peer", dp.ep.Peer(), "why", why)
	}
}

// Describe says how bytes move; see conn.DataPath.
func (dp *dataPath) Describe() (name, reason string) {
	if !dp.isReady() {
		return "rdma", "queue pairs are being set up"
	}
	var on []string
	for _, r := range dp.rails {
		text := r.String()
		if r.nic.why != "" {
			text += " (" + r.nic.why + ")"
		}
		on = append(on, text)
	}
	reason = strings.Join(on, ", ")
	if dp.rails[0].wire == nil {
		reason += "; messages use TCP: TLS encrypts them, or a device has no room for their queue pair"
	}
	if why := dp.SlowReason(); why != "" {
		reason += "; some ops use TCP: " + why
	}
	return "rdma", reason
}
