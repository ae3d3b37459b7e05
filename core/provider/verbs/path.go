// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/pathbase"
)

// A dataPath moves the payload of one endpoint's reads and writes with NICs. It is a conn.DataPath.
// Its parts own their state:
//
//	ops      our reads and writes, from RMA to their completion (pending.go)
//	grants   regions of the peer that we may reach, and regions that the peer may reach
//	setup    the agreement with the peer on the rails (setup.go)
//	rails    the rails that are up, and their queue pairs (rails.go)
//	notices  remote data of the peer's writes (notice.go)
//	domain   the registrations, which all data paths of a domain share (domain.go)
//
// RMA starts an op if all that it needs is known: the rails, the grant of the remote region, and
// the registration of local memory. Otherwise a goroutine waits for it.
type dataPath struct {
	port   connPort
	all    *domains
	domain *domain
	log    *slog.Logger
	within time.Duration // how long to wait for a peer or a device
	member pathbase.Member
	slow   pathbase.SlowPath

	ops     ops
	grants  pathbase.Grants[regionRef]
	setup   setup
	rails   rails
	notices notices
}

// A connPort is the part of a conn.Port that a dataPath needs.
type connPort interface {
	pathbase.Port
	AddWire(w conn.Wire)
	WireRoom()
	WireCame()
	FailWith(err error, kind uint8, body []byte)
	RecvCQ() *util.CQ
	Source() fabric.AVAddr
}

var _ conn.DataPath = (*dataPath)(nil)

func newDataPath(port connPort, all *domains, table *regions.Table, dialed bool) *dataPath {
	dp := &dataPath{port: port, all: all, log: all.opts.Log, within: all.opts.releaseWait}
	dp.slow.First = func(why error) {
		dp.log.Info("verbs: an op uses TCP, which is slower", "peer", port.Peer(), "why", why)
	}
	dp.ops.init(dp)
	dp.grants.Init(&dp.ops.Ops, table, dp.describe, dp.parseRegionRef)
	dp.rails.init()
	dp.setup.path, dp.setup.dialed = dp, dialed
	dp.notices.path = dp
	dp.member = pathbase.Member{Path: dp, Conn: port, Given: &dp.grants.Given, Holds: dp.ops.holds}
	return dp
}

// RMA takes over an op; see conn.DataPath.
func (dp *dataPath) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite || op.Seg.Len == 0 && op.Len() == 0 {
		return false
	}
	o := dp.ops.add(t, op)
	if o == nil {
		return true
	}
	switch dp.start(o, key, false) {
	case pathbase.ByStream:
		dp.ops.refuse(o)
		return false
	case pathbase.NotYet:
		go dp.startLater(o, key)
	}
	return true
}

// startLater waits for what RMA could not wait for, then starts the op.
func (dp *dataPath) startLater(o *pendingOp, key fabric.RegionKey) {
	if dp.start(o, key, true) == pathbase.ByStream {
		dp.ops.handBack(o)
	}
}

// errStream means that an op must use TCP; wrapping errors say why.
var errStream = errors.New("no NIC can")

// start starts an op. Without wait it does not block.
func (dp *dataPath) start(o *pendingOp, key fabric.RegionKey, wait bool) pathbase.Outcome {
	if !dp.rails.isReady() {
		if !wait {
			return pathbase.NotYet
		}
		if !dp.rails.await(dp.ops.Stopped) {
			return dp.ops.fail(o, dp.ops.Cause())
		}
	}
	l, err := dp.grants.Find(key, wait)
	if errors.Is(err, pathbase.ErrNotYet) {
		return pathbase.NotYet
	}
	if err != nil {
		return dp.ops.fail(o, err)
	}
	if l.Refused != 0 {
		dp.noteRefusal(l)
		return pathbase.ByStream // the target reports the cause, or has another data path
	}
	if err := grant.Check(o.op, l.Key.ID, l.Region.access, l.Region.size); err != nil {
		return dp.ops.fail(o, err)
	}
	err = o.prepare(l, wait)
	switch {
	case err == nil:
		o.post()
		return pathbase.Started
	case errors.Is(err, pathbase.ErrNotYet):
		o.drop()
		return pathbase.NotYet
	case errors.Is(err, errStream):
		dp.slow.Note(err)
		o.drop()
		return pathbase.ByStream
	}
	return dp.ops.fail(o, err)
}

// noteRefusal records that the peer's NICs cannot access a region; the peer's log says why.
func (dp *dataPath) noteRefusal(l *grant.Grant[regionRef]) {
	if l.Refused == fabric.ErrNotSupported && dp.slow.Reason() == "" {
		dp.slow.Note(fmt.Errorf("%w: no NIC of the peer can access its region %d; its log says why", errStream, l.Key.ID))
	}
}

// The stream carries messages, over the wire if there is one.

// Frame handles the peer's extension frames; see conn.DataPath.
func (dp *dataPath) Frame(kind uint8, body []byte) error {
	switch kind {
	case frameOffer:
		return dp.setup.onOffer(body)
	case frameAnswer:
		return dp.setup.onAnswer(body)
	case frameUp:
		return dp.setup.onUp()
	case frameNoRails:
		return dp.setup.onNoRails(body)
	case frameCredit:
		return dp.rails.onCredit(body)
	}
	return dp.grants.OnFrame(kind, body)
}

// describe returns what the peer needs to access a region here.
func (dp *dataPath) describe(mr *regions.MR) ([]byte, error) {
	if !dp.rails.await(dp.ops.Stopped) {
		return nil, fabric.ErrNotConn
	}
	g := dp.domain.registrationOf(mr, true)
	if g == nil {
		return nil, fabric.ErrNoKey
	}
	defer g.use.Leave()
	if g.err != nil {
		dp.slow.Note(fmt.Errorf("%w: %w", errStream, g.err))
		return nil, fabric.ErrNotSupported
	}
	if !dp.rails.know(g) {
		return nil, fabric.ErrNotSupported // the connection is ending
	}
	r := g.ref(mr, dp.rails.all)
	return r.encode(), nil
}

// parseRegionRef parses the peer's description of its region, for the current number of rails.
func (dp *dataPath) parseRegionRef(b []byte) (regionRef, error) {
	r, err := parseRegionRef(b)
	if !dp.rails.isReady() {
		return r, fmt.Errorf("grant before the rails are up: %w", fabric.ErrProtocol)
	}
	if err == nil && len(r.keys) != len(dp.rails.all) {
		return r, fmt.Errorf("grant for %d rails of %d: %w", len(r.keys), len(dp.rails.all), fabric.ErrProtocol)
	}
	return r, err
}

// Describe names the data path; see conn.DataPath.
func (dp *dataPath) Describe() (name, reason string) {
	if !dp.rails.isReady() {
		return "rdma", "queue pairs are being set up"
	}
	reason = dp.rails.describe()
	if why := dp.slow.Reason(); why != "" {
		reason += "; some ops use TCP: " + why
	}
	return "rdma", reason
}

// deadReleaseWait bounds the wait for the other devices of a connection if one is dead. A dead
// device's work ends when its queue pairs are destroyed.
const deadReleaseWait = 100 * time.Millisecond

// Close ends all ops and all grants, in both directions; see conn.DataPath. Once the queue pairs
// are destroyed, no NIC accesses memory for this connection, neither for our ops nor for the
// peer's.
func (dp *dataPath) Close(cause error) {
	empty, cause := dp.ops.Stop(cause)
	dp.grants.Held.Stop()
	all := dp.setup.stop()
	wait := dp.within
	for _, r := range all {
		r.shut(cause)
		if r.nic.dead.Load() {
			wait = min(wait, deadReleaseWait)
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
		dp.log.Warn("verbs: a device did not finish its work, destroying its queue pairs", "peer", dp.port.Peer(), "after", wait)
	}
	close(dp.rails.gone)
	for _, r := range all {
		logged(dp.log, "close a rail", r.close())
	}
	<-empty // the rest has ended with its queue pair
	dp.notices.stop()
	dp.grants.Given.Stop()
	dp.all.Leave(&dp.member)
}
