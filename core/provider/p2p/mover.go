// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
)

// A mover moves the payload of one endpoint's reads and writes where a GPU's memory is at one end, lends this side's regions to the peer, and
// carries out its orders. It is the stream's Direct.
//
// An op: RMA begins it if all that it needs is known, else a goroutine finds that out, which waits for the peer and for drivers
// (begin.go): the loan of the remote region (loan.go), the region as the copying device sees it (place.go), and the pin of local host
// memory (domain.go). Then the engine copies (engine.go), or the peer does by order (order.go), and the stream finishes the op or
// forwards its remote data. What cannot be copied so is handed back to the stream.
type mover struct {
	ep     endpoint
	domain *domain
	greet  *greeting
	log    *slog.Logger
	letGo  time.Duration // how long a peer or a device is waited for

	ours, theirs local.Fence // passed by the peer's copies, and by ours

	ops     local.Gate    // ops between RMA and the stream's Finish
	serving local.Gate    // orders that are carried out for the peer
	stopped chan struct{} // closed when Stop begins
	gaveUp  chan struct{} // closed when Stop ends
	why     atomic.Pointer[string]

	mu    sync.Mutex
	live  map[*flight]struct{} // ops that RMA took and that have not ended, and orders being carried out
	spare []*flight
	cause error // why it stopped

	out      grant.Sender
	borrower grant.Holder[*reach]
	lender   grant.Granter
	orders   orders
}

// endpoint is what a mover needs of *conn.Endpoint.
type endpoint interface {
	Finish(t conn.Ticket, err error)
	Forward(t conn.Ticket)
	HandBack(t conn.Ticket)
	SendFrame(kind uint8, body []byte) error
	Fail(err error)
	Peer() fabric.Addr
}

var _ conn.DataPath = (*mover)(nil)

func newMover(ep endpoint, g *greeting, table *util.MRTable, opts *Options) *mover {
	m := &mover{
		ep: ep, greet: g, log: opts.Log, letGo: opts.letGo, ours: fenceIn(g.ours), theirs: fenceIn(g.theirs),
		stopped: make(chan struct{}), gaveUp: make(chan struct{}), live: make(map[*flight]struct{}),
	}
	m.initLoans(table)
	m.orders.init()
	return m
}

// longList is from how many segments on the caller does not write the list itself: 8192 take 0.1 ms with the copy into the list that the
// GPU reads, which is as long as the GPU copies 4 KiB each. So the next op is submitted meanwhile.
const longList = 512

// RMA takes an op over; see conn.DataPath.
func (m *mover) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if op.Seg.Len == 0 && op.Len() == 0 || op.Flags&fabric.OpInject != 0 {
		return false
	}
	if !m.ops.Enter() {
		m.ep.Finish(t, m.stopCause())
		return true
	}
	f := m.newFlight()
	f.ticket, f.op = t, op
	m.track(f)
	if max(len(op.More), len(op.RMore)) >= longList {
		go m.beginLater(f, key)
		return true
	}
	switch m.begin(f, key, false) {
	case begun:
	case byStream:
		if !f.ended.CompareAndSwap(false, true) {
			return true
		}
		m.freeFlight(f)
		m.ops.Leave()
		return false
	case notYet:
		go m.beginLater(f, key)
	}
	return true
}

// beginLater finds out what RMA did not wait for.
func (m *mover) beginLater(f *flight, key fabric.RegionKey) {
	if m.begin(f, key, true) == byStream && f.ended.CompareAndSwap(false, true) {
		t := f.ticket
		m.freeFlight(f)
		m.ep.HandBack(t)
		m.ops.Leave()
	}
}

// landed is the engine's report.
func (m *mover) landed(f *flight, err error) {
	if f.order != nil {
		m.served(f, err)
		return
	}
	switch {
	case err != nil:
		err = m.copyFault(f, err)
	case !m.greet.same && m.greet.peer.Dead():
		// Its memory stands as long as it is mapped here: the copy went well, and nobody has the bytes.
		err = local.OpFault(fabric.ErrConnReset, "the peer's process %d has ended", m.greet.peer.PID)
	}
	m.end(f, err)
}

// end finishes an op, unless Stop did.
func (m *mover) end(f *flight, err error) {
	m.untrack(f)
	f.release()
	if !f.ended.CompareAndSwap(false, true) {
		return // Stop gave up on it
	}
	t, told := f.ticket, f.op.Kind == fabric.OpWrite && f.op.Flags&fabric.OpRemoteData != 0
	m.freeFlight(f)
	if err == nil && told {
		m.ep.Forward(t)
	} else {
		m.ep.Finish(t, err)
	}
	m.ops.Leave()
}

func (m *mover) newFlight() *flight {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.spare); n > 0 {
		f := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return f
	}
	return &flight{mover: m, owner: m}
}

// track notes an op or order for Stop.
func (m *mover) track(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[f] = struct{}{}
}

func (m *mover) untrack(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, f)
}

// freeFlight keeps a flight that has ended for another op.
func (m *mover) freeFlight(f *flight) {
	const keep = 64
	f.release()
	segs, held, regions := f.segs[:0], f.held[:0], f.regions[:0]
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, f)
	if len(m.spare) < keep {
		*f = flight{mover: m, owner: m, segs: segs, held: held, regions: regions}
		m.spare = append(m.spare, f)
	}
}

// Messages are the stream's.

// Frame takes the peer's extension frames; see conn.DataPath.
func (m *mover) Frame(kind uint8, body []byte) error {
	switch kind {
	case frameOrder:
		return m.onOrder(body)
	case frameDone:
		return m.onDone(body)
	}
	return grant.OnFrame(&m.lender, &m.borrower, kind, body)
}

// send sends a frame; a peer that lets a megabyte of them pile up is not alive.
func (m *mover) send(kind uint8, body []byte) {
	if err := m.ep.SendFrame(kind, body); err != nil && !m.isStopped() {
		m.ep.Fail(fmt.Errorf("send p2p frame of kind %d: %w", kind, err))
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

func (m *mover) stopCause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause
}

// slow notes why an op that touches a GPU's memory goes by the stream. The log has the first reason.
func (m *mover) slow(why error) {
	text := why.Error()
	if m.why.Swap(&text) == nil {
		m.log.Warn("p2p: GPU memory goes by the socket, which is slower", "peer", m.ep.Peer(), "why", why)
	}
}

// Describe says how bytes move; see conn.DataPath.
func (m *mover) Describe() (name, reason string) {
	where := fmt.Sprintf("process %d of this host", m.greet.peer.PID)
	if m.greet.same {
		where = "this process"
	}
	reason = "GPUs copy from and to memory of " + where
	if why := m.why.Load(); why != nil {
		reason += "; some ops go by the socket: " + *why
	}
	return "gpu", reason
}
