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

// A dataPath moves the payload of one endpoint's reads and writes where a GPU's memory is at one
// end, grants the peer access to this side's regions, and carries out its orders. It is a
// conn.DataPath.
//
// An op: RMA begins it if all that it needs is known, else a goroutine finds that out, which waits
// for the peer and for drivers (begin.go): the grant of the remote region (grants.go), the region
// as the copying device sees it (place.go), and the pin of local host memory (domain.go). Then the
// engine copies (engine.go), or the peer does by order (order.go), and the stream finishes the op
// or forwards its remote data. What cannot be copied so is handed back to the stream.
type dataPath struct {
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

	out     grant.Sender
	holder  grant.Holder[*reach]
	granter grant.Granter
	orders  orders
}

// endpoint is what a dataPath needs of a conn.Port.
type endpoint interface {
	Finish(t conn.Ticket, err error)
	Forward(t conn.Ticket)
	HandBack(t conn.Ticket)
	SendFrame(kind uint8, body []byte) error
	Fail(err error)
	Peer() fabric.Addr
}

var _ conn.DataPath = (*dataPath)(nil)

func newDataPath(ep endpoint, g *greeting, table *util.MRTable, opts *Options) *dataPath {
	dp := &dataPath{
		ep: ep, greet: g, log: opts.Log, letGo: opts.letGo, ours: fenceIn(g.ours), theirs: fenceIn(g.theirs),
		stopped: make(chan struct{}), gaveUp: make(chan struct{}), live: make(map[*flight]struct{}),
	}
	dp.initGrants(table)
	dp.orders.init()
	return dp
}

// longList is from how many segments on the caller does not write the list itself: 8192 take 0.1 ms
// with the copy into the list that the GPU reads, which is as long as the GPU copies 4 KiB each. So
// the next op is submitted meanwhile.
const longList = 512

// RMA takes an op over; see conn.DataPath.
func (dp *dataPath) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if op.Seg.Len == 0 && op.Len() == 0 || op.Flags&fabric.OpInject != 0 {
		return false
	}
	if !dp.ops.Enter() {
		dp.ep.Finish(t, dp.stopCause())
		return true
	}
	f := dp.newFlight()
	f.ticket, f.op = t, op
	dp.track(f)
	if max(len(op.More), len(op.RMore)) >= longList {
		go dp.beginLater(f, key)
		return true
	}
	switch dp.begin(f, key, false) {
	case begun:
	case byStream:
		if !f.ended.CompareAndSwap(false, true) {
			return true
		}
		dp.freeFlight(f)
		dp.ops.Leave()
		return false
	case notYet:
		go dp.beginLater(f, key)
	}
	return true
}

// beginLater finds out what RMA did not wait for.
func (dp *dataPath) beginLater(f *flight, key fabric.RegionKey) {
	if dp.begin(f, key, true) == byStream && f.ended.CompareAndSwap(false, true) {
		t := f.ticket
		dp.freeFlight(f)
		dp.ep.HandBack(t)
		dp.ops.Leave()
	}
}

// landed is the engine's report.
func (dp *dataPath) landed(f *flight, err error) {
	if f.order != nil {
		dp.served(f, err)
		return
	}
	switch {
	case err != nil:
		err = dp.copyFault(f, err)
	case !dp.greet.same && dp.greet.peer.Dead():
		// Its memory stands as long as it is mapped here: the copy went well, and nobody has the
		// bytes.
		err = local.OpFault(fabric.ErrConnReset, "the peer's process %d has ended", dp.greet.peer.PID)
	}
	dp.end(f, err)
}

// end finishes an op, unless Stop did.
func (dp *dataPath) end(f *flight, err error) {
	dp.untrack(f)
	f.release()
	if !f.ended.CompareAndSwap(false, true) {
		return // Stop gave up on it
	}
	t, notify := f.ticket, f.op.Kind == fabric.OpWrite && f.op.Flags&fabric.OpRemoteData != 0
	dp.freeFlight(f)
	if err == nil && notify {
		dp.ep.Forward(t)
	} else {
		dp.ep.Finish(t, err)
	}
	dp.ops.Leave()
}

func (dp *dataPath) newFlight() *flight {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	if n := len(dp.spare); n > 0 {
		f := dp.spare[n-1]
		dp.spare = dp.spare[:n-1]
		return f
	}
	return &flight{path: dp, owner: dp}
}

// track notes an op or order for Stop.
func (dp *dataPath) track(f *flight) {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	dp.live[f] = struct{}{}
}

func (dp *dataPath) untrack(f *flight) {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	delete(dp.live, f)
}

// freeFlight keeps a flight that has ended for another op.
func (dp *dataPath) freeFlight(f *flight) {
	const keep = 64
	f.release()
	segs, held, regions := f.segs[:0], f.held[:0], f.regions[:0]
	dp.mu.Lock()
	defer dp.mu.Unlock()
	delete(dp.live, f)
	if len(dp.spare) < keep {
		*f = flight{path: dp, owner: dp, segs: segs, held: held, regions: regions}
		dp.spare = append(dp.spare, f)
	}
}

// Messages are the stream's.

// Frame takes the peer's extension frames; see conn.DataPath.
func (dp *dataPath) Frame(kind uint8, body []byte) error {
	switch kind {
	case frameOrder:
		return dp.onOrder(body)
	case frameDone:
		return dp.onDone(body)
	}
	return grant.OnFrame(&dp.granter, &dp.holder, kind, body)
}

// send sends a frame; a peer that lets a megabyte of them pile up is not alive.
func (dp *dataPath) send(kind uint8, body []byte) {
	if err := dp.ep.SendFrame(kind, body); err != nil && !dp.isStopped() {
		dp.ep.Fail(fmt.Errorf("send p2p frame of kind %d: %w", kind, err))
	}
}

func (dp *dataPath) isStopped() bool {
	select {
	case <-dp.stopped:
		return true
	default:
		return false
	}
}

func (dp *dataPath) stopCause() error {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	return dp.cause
}

// slow notes why an op that touches a GPU's memory goes by the stream. The log has the first
// reason.
func (dp *dataPath) slow(why error) {
	text := why.Error()
	if dp.why.Swap(&text) == nil {
		dp.log.Warn("p2p: GPU memory goes by the socket, which is slower", "peer", dp.ep.Peer(), "why", why)
	}
}

// Describe says how bytes move; see conn.DataPath.
func (dp *dataPath) Describe() (name, reason string) {
	where := fmt.Sprintf("process %d of this host", dp.greet.peer.PID)
	if dp.greet.same {
		where = "this process"
	}
	reason = "GPUs copy from and to memory of " + where
	if why := dp.why.Load(); why != nil {
		reason += "; some ops go by the socket: " + *why
	}
	return "gpu", reason
}
