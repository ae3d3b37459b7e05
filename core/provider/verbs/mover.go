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
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
)

// A mover moves the payload of one endpoint's reads and writes by the NICs, and lends this side's regions to the peer. It is the stream's
// Direct.
//
// An op: RMA begins it if all that it needs is known, else a goroutine waits for that (begin.go): the rails (setup.go), the loan of the
// remote region, and the local region's registration (register.go). Its work requests are posted to queue pairs (pair.go), whose completions
// a goroutine of each rail takes (rail.go). What NICs cannot do is handed back to the stream.
type mover struct {
	ep     endpoint
	domain *domain
	all    *domains
	log    *slog.Logger
	letGo  time.Duration
	dialed bool // and offers rails

	ops     local.Gate     // ops between RMA and the stream's Finish
	setup   sync.WaitGroup // goroutines that set rails up
	stopped chan struct{}  // closed when Stop begins
	gone    chan struct{}  // closed when rails close
	ready   chan struct{}  // closed when the rails are up
	why     atomic.Pointer[string]
	next    atomic.Uint32 // which queue pair is next for short ops

	mu    sync.Mutex
	rails []*rail // set before ready closes
	asked bool    // an offer or an answer came
	wired bool    // an answer was sent: the peer may say that it is up
	live  map[*flight]struct{}
	spare []*flight
	cause error // why it stopped

	// Set before ready closes.
	pairs             []*pair // of all rails
	maxInline, maxRun uint64  // bytes of a write without registered memory, and of a work request

	numbers  atomic.Uint32 // of ops with remote data
	notices  notices
	out      grant.Sender
	borrower grant.Holder[place]
	lender   grant.Granter
}

// endpoint is what a mover needs of *conn.Endpoint.
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

var _ conn.DataPath = (*mover)(nil)

func newMover(ep endpoint, all *domains, table *util.MRTable) *mover {
	m := &mover{
		ep: ep, all: all, log: all.opts.Log, letGo: all.opts.letGo,
		stopped: make(chan struct{}), gone: make(chan struct{}), ready: make(chan struct{}), live: make(map[*flight]struct{}),
	}
	m.notices.m = m
	m.out.Send = m.send
	m.borrower.Parse, m.borrower.Out = m.parsePlace, &m.out
	m.lender.Table, m.lender.Describe, m.lender.Out = table, m.describe, &m.out
	return m
}

// RMA takes an op over; see conn.DataPath.
func (m *mover) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite || op.Seg.Len == 0 && op.Len() == 0 {
		return false
	}
	if !m.ops.Enter() {
		m.ep.Finish(t, m.stopCause())
		return true
	}
	f := m.newFlight(t, op)
	switch m.begin(f, key, false) {
	case begun:
	case byStream:
		m.freeFlight(f)
		m.ops.Leave()
		return false
	case notYet:
		go m.beginLater(f, key)
	}
	return true
}

// beginLater waits for what RMA did not wait for.
func (m *mover) beginLater(f *flight, key fabric.RegionKey) {
	if m.begin(f, key, true) == byStream {
		t := f.ticket
		m.freeFlight(f)
		m.ep.HandBack(t)
		m.ops.Leave()
	}
}

// landed ends an op whose work requests have all ended.
func (m *mover) landed(f *flight) {
	if f.wire != nil {
		f.wire.sent(f)
		return
	}
	if err := f.fault.Load(); err != nil {
		m.end(f, *err)
		return
	}
	var err error
	if f.spare.of != nil && f.op.Kind == fabric.OpRead {
		err = m.deliver(f)
	}
	m.end(f, err)
}

// end finishes an op.
func (m *mover) end(f *flight, err error) {
	t, tell := f.ticket, f.tells() && !f.told
	m.freeFlight(f)
	if err == nil && tell {
		m.ep.Forward(t)
	} else {
		m.ep.Finish(t, err)
	}
	m.ops.Leave()
}

// Messages are the stream's, which has the wire for them.

// Frame takes the peer's extension frames; see conn.DataPath.
func (m *mover) Frame(kind uint8, body []byte) error {
	switch kind {
	case frameOffer:
		return m.onOffer(body)
	case frameAnswer:
		return m.onAnswer(body)
	case frameUp:
		return m.onUp()
	case frameCredit:
		return m.onCredit(body)
	case frameNoRails:
		return m.onNoRails(body)
	}
	return grant.OnFrame(&m.lender, &m.borrower, kind, body)
}

// describe is what the peer needs to reach a region here.
func (m *mover) describe(mr *util.MR) ([]byte, error) {
	if !m.awaitRails() {
		return nil, fabric.ErrNotConn
	}
	g := m.domain.regions.find(mr, true)
	if g == nil {
		return nil, fabric.ErrNoKey
	}
	defer g.use.Leave()
	if g.err != nil {
		m.slow(fmt.Errorf("%w: %w", errStream, g.err))
		return nil, fabric.ErrNotSupported
	}
	if !m.isKnown(g) {
		return nil, fabric.ErrNotSupported // the connection is ending
	}
	p := g.place(mr, m.rails)
	return p.encode(), nil
}

// parsePlace reads what the peer says of its region, for as many rails as there are.
func (m *mover) parsePlace(b []byte) (place, error) {
	p, err := parsePlace(b)
	if !m.isReady() {
		return p, fmt.Errorf("loan before the rails are up: %w", fabric.ErrProtocol)
	}
	if err == nil && len(p.keys) != len(m.rails) {
		return p, fmt.Errorf("loan for %d rails of %d: %w", len(p.keys), len(m.rails), fabric.ErrProtocol)
	}
	return p, err
}

// awaitRails reports whether the rails came up.
func (m *mover) awaitRails() bool {
	select {
	case <-m.ready:
		return true
	case <-m.stopped:
		return false
	}
}

// send sends a frame; a peer that lets a megabyte of them pile up is not alive.
func (m *mover) send(kind uint8, body []byte) {
	if err := m.ep.SendFrame(kind, body); err != nil && !m.isStopped() {
		m.ep.Fail(fmt.Errorf("send verbs frame of kind %d: %w", kind, err))
	}
}

func (m *mover) isStopped() bool {
	select {
	case <-m.stopped:
		return true
	default:
		return false
	}
}

// isGone reports whether the rails are closing.
func (m *mover) isGone() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}

func (m *mover) stopCause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause
}

// slow notes why an op goes by TCP. The log has the first reason.
func (m *mover) slow(why error) {
	text := why.Error()
	if m.why.Swap(&text) == nil {
		m.log.Info("verbs: an op goes by TCP, which is slower", "peer", m.ep.Peer(), "why", why)
	}
}

// Describe says how bytes move; see conn.DataPath.
func (m *mover) Describe() (name, reason string) {
	if !m.isReady() {
		return "rdma", "queue pairs are being set up"
	}
	var on []string
	for _, r := range m.rails {
		text := r.String()
		if r.nic.why != "" {
			text += " (" + r.nic.why + ")"
		}
		on = append(on, text)
	}
	reason = strings.Join(on, ", ")
	if m.rails[0].wire == nil {
		reason += "; messages go by TCP: TLS encrypts them, or a device has no room for their queue pair"
	}
	if why := m.why.Load(); why != nil {
		reason += "; some ops go by TCP: " + *why
	}
	return "rdma", reason
}
