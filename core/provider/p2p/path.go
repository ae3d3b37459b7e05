// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"log/slog"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
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
	pathbase.Base

	ep     endpoint
	domain *domain
	greet  *greeting
	log    *slog.Logger
	letGo  time.Duration // how long a peer or a device is waited for

	ours, theirs local.Fence // passed by the peer's copies, and by ours

	serving local.Gate    // orders that are carried out for the peer
	gaveUp  chan struct{} // closed when Stop ends

	pending pathbase.Pending[flight] // ops from RMA to their end, and orders of the peer
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

func newDataPath(ep endpoint, g *greeting, table *regions.Table, opts *Options) *dataPath {
	dp := &dataPath{
		ep: ep, greet: g, log: opts.Log, letGo: opts.letGo, ours: fenceIn(g.ours), theirs: fenceIn(g.theirs),
		gaveUp: make(chan struct{}),
	}
	dp.InitBase()
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
	if !dp.Ops.Enter() {
		dp.ep.Finish(t, dp.Cause())
		return true
	}
	f := dp.newFlight()
	f.ticket, f.op = t, op
	dp.pending.Add(f)
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
		dp.Ops.Leave()
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
		dp.Ops.Leave()
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
	dp.pending.Remove(f)
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
	dp.Ops.Leave()
}

func (dp *dataPath) newFlight() *flight {
	if f := dp.pending.Spare(); f != nil {
		return f
	}
	return &flight{path: dp, owner: dp}
}

// freeFlight keeps a flight that has ended for another op.
func (dp *dataPath) freeFlight(f *flight) {
	dp.pending.Remove(f) // before what Any reads changes
	f.release()
	*f = flight{path: dp, owner: dp, segs: f.segs[:0], held: f.held[:0], regions: f.regions[:0]}
	dp.pending.Recycle(f)
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
	dp.Base.Send(dp.ep, "p2p", kind, body)
}

// slow notes why an op that touches a GPU's memory goes by the stream. The log has the first
// reason.
func (dp *dataPath) slow(why error) {
	if dp.Slow(why) {
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
	if why := dp.SlowReason(); why != "" {
		reason += "; some ops go by the socket: " + why
	}
	return "gpu", reason
}
