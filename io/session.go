// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"mori/core/config"
	"mori/core/fabric"
	"mori/io/internal/batch"
	"mori/io/internal/gate"
	"mori/io/internal/message"
	"mori/io/internal/region"
	"mori/io/internal/serial"
)

// MaxTag is the length of a transfer's tag, in bytes.
const MaxTag = message.MaxTag

// A Session moves bytes between one local and one remote region. Safe for concurrent use; it needs
// no closing.
type Session struct {
	engine  *Engine
	peer    *peer
	route   *route
	skipped []string // why no better backend serves the pair
	local   *region.Region
	remote  MemoryDesc
	notify  bool
	limit   time.Duration

	plan atomic.Pointer[plan]
	mu   serial.Mutex // held while a plan is made
}

// A plan is what a session has worked out for the present path.
type plan struct {
	path *path
	to   batch.Target
}

// A Request is one transfer: entries that are copied between the two regions of a Session as a
// whole, with one Status. Submit keeps none of its slices.
type Request struct {
	Write         bool     // from local to remote; else the other way
	Local, Remote []uint64 // offsets of the entries in bytes, one of each for an entry
	Sizes         []uint64 // of the entries in bytes
	BlockSize     uint64   // if not 0, the size of every entry: Sizes is not used then
	UID           uint64

	// Tag, up to MaxTag bytes of UTF-8, names the transfer in messages, statistics and traces, and
	// at the peer (Engine.InboundTag), where it may arrive after the bytes. Empty is none.
	Tag string

	// After holds the transfer back until a GPU has got so far. The caller does not wait for that,
	// the deadline counts from Submit, and the transfer keeps its place in the order of successes.
	// If the GPU reports an error, the transfer fails with it.
	After After

	// Deadline is when the transfer fails if it has not ended, counted from Submit. 0 is the
	// session's, NoDeadline is none.
	Deadline time.Duration
}

// NoDeadline is the Deadline of a Request that may take for ever.
const NoDeadline time.Duration = -1

// Read copies sz[i] bytes from remote offset ro[i] to local offset lo[i], for each i.
func (s *Session) Read(lo, ro, sz []uint64, uid uint64) *Status {
	return s.Submit(&Request{Local: lo, Remote: ro, Sizes: sz, UID: uid})
}

// Write copies sz[i] bytes from local offset lo[i] to remote offset ro[i], for each i.
func (s *Session) Write(lo, ro, sz []uint64, uid uint64) *Status {
	return s.Submit(&Request{Write: true, Local: lo, Remote: ro, Sizes: sz, UID: uid})
}

// Ready reports whether a submission would start at once: without a connection to be made first,
// and without a wait for pending transfers to end.
func (s *Session) Ready() bool { return s.connected() && s.peer.order.hasRoom(s.engine.maxPending) }

// connected reports whether there is a plan for an open path.
func (s *Session) connected() bool {
	p := s.plan.Load()
	return p != nil && p.path.err() == nil && !p.path.superseded.Load() && !s.route.backend.removed.Load()
}

// Alive reports whether submissions can still succeed: engine open, local region registered, peer
// known.
func (s *Session) Alive() bool {
	return !s.engine.closed() && !s.route.backend.removed.Load() && s.local.Open() &&
		s.engine.store.peerOf(s.remote.EngineKey) == s.peer
}

// AllocateTransferUID is the engine's.
func (s *Session) AllocateTransferUID() uint64 { return s.engine.AllocateTransferUID() }

// Submit starts a transfer. Its errors are the Status's: nothing was copied if the request is
// invalid. The first call waits for a connection. A later one waits only while too many transfers
// to the peer are pending (MORI_IO_MAX_PENDING), up to the transfer's deadline or 30 s, and then
// fails with ErrBadState. While a path is broken, transfers begin when there is another. Others may
// write to the slices of a Request with a BlockSize meanwhile: each offset is read once, before
// Submit returns.
func (s *Session) Submit(r *Request) *Status {
	kind := fabric.OpRead
	if r.Write {
		kind = fabric.OpWrite
	}
	b := batch.New()
	e := batch.Entries{Local: r.Local, Remote: r.Remote, Sizes: r.Sizes, Size: r.BlockSize,
		One: r.BlockSize > 0}
	total, err := b.Accept(&e, s.local.Desc().Size, s.remote.Size)
	if err == nil {
		err = message.CheckTag(r.Tag)
	}
	if err == nil && len(e.Local) == 0 {
		b.Release()
		st := NewStatus()
		st.Update(CodeSuccess, "")
		return st
	}
	p, broken := s.broken()
	if err == nil && !broken {
		p, err = s.ready()
	}
	limit := s.limitOf(r)
	if err == nil && !s.peer.order.room(s.engine.maxPending, roomWait(limit)) {
		err = fmt.Errorf("%d transfers to %q are pending (each %d entries of a batch count as one more), and none ended in %v: wait for some first, or raise %s: %w",
			s.peer.order.pending.Load(), s.remote.EngineKey, loadEntries, roomWait(limit), config.IOMaxPending, ErrBadState)
	}
	var g *gate.Gate
	if err == nil {
		g, err = s.gate(r.After)
	}
	if err != nil {
		b.Release()
		return s.refused(err)
	}
	st := startedStatus()
	t := &transfer{status: st, session: s, uid: r.UID, kind: kind, total: total, tag: r.Tag,
		to: p.to, start: now(), limit: limit, load: load(len(e.Local))}
	t.path.Store(p.path) // for reports before it starts
	t.batch = b
	b.Build(kind, &p.to, total, &e)
	t.opsMade = uint32(len(t.batch.Ops))
	st.of.Store(t)
	p.path.opMeter(t).Enter()
	s.peer.order.add(t)
	if r.Tag != "" {
		s.peer.tags.Add(message.Tag{UID: r.UID, Text: r.Tag, Region: s.remote.Key()})
	}
	switch {
	case g != nil:
		s.peer.hold(g, t)
	case broken:
		s.peer.replays.replay(p.path, []*transfer{t}) // it waits for a path, not its caller
	default:
		p.path.start(t)
	}
	return st
}

// limitOf returns how long a transfer may take, 0 for ever.
func (s *Session) limitOf(r *Request) time.Duration {
	switch {
	case r.Deadline < 0:
		return 0
	case r.Deadline > 0:
		return r.Deadline
	}
	return s.limit
}

// mostRoomWait bounds the wait of a submission for room.
const mostRoomWait = 30 * time.Second

// roomWait returns how long a submission may wait while too many transfers are pending.
func roomWait(limit time.Duration) time.Duration {
	if limit > 0 {
		return min(limit, mostRoomWait)
	}
	return mostRoomWait
}

// gate makes what the transfer waits for, if anything, and enters the local region.
func (s *Session) gate(after After) (g *gate.Gate, err error) {
	if after != (After{}) {
		if g, err = s.engine.gates.Arm(after); err != nil {
			return nil, afterFailed(err)
		}
	}
	if s.local.Enter() {
		return g, nil
	}
	err = s.local.Gone()
	if g != nil {
		err = errors.Join(err, s.engine.gates.Release(g, false))
	}
	return nil, err
}

// epoch is any time that the process knows.
var epoch = time.Now()

// now is time.Now by one look at the clock in place of two: the monotonic one.
func now() time.Time { return epoch.Add(time.Since(epoch)) }

// broken returns the plan for a path that has ended, if that is what the session has.
func (s *Session) broken() (*plan, bool) {
	p := s.plan.Load()
	return p, p != nil && p.path.err() != nil && !s.route.backend.removed.Load()
}

// WithDeadline is a session between the same regions whose transfers have another deadline; 0 =
// none. The two share everything else.
func (s *Session) WithDeadline(limit time.Duration) *Session {
	d := &Session{engine: s.engine, peer: s.peer, route: s.route, skipped: s.skipped,
		local: s.local, remote: s.remote, notify: s.notify, limit: limit}
	d.plan.Store(s.plan.Load())
	return d
}

// refused is the status of a transfer that was not started.
func (s *Session) refused(err error) *Status {
	s.engine.self.Log.Error("transfer refused", "peer", s.remote.EngineKey, "reason", err)
	s.engine.meters.refused.Add(1)
	return failedStatus(s.route.backend.outcome(err, err.Error()))
}

// ready returns the plan for an open path, making one if need be.
func (s *Session) ready() (*plan, error) {
	if s.connected() {
		return s.plan.Load(), nil
	}
	ctx, cancel := s.peer.controlContext(s.route.backend)
	defer cancel()
	return s.readyWithin(ctx)
}

// readyWithin is ready, as long as ctx allows.
func (s *Session) readyWithin(ctx context.Context) (*plan, error) {
	if s.connected() {
		return s.plan.Load(), nil
	}
	if err := s.mu.Lock(ctx); err != nil {
		return nil, fmt.Errorf("another call is opening the session's path: %w (%w)", err, ErrUnreachable)
	}
	defer s.mu.Unlock()
	if s.connected() {
		return s.plan.Load(), nil
	}
	if s.route.backend.removed.Load() {
		return nil, fmt.Errorf("backend %v was removed: %w", s.route.backend.kind, ErrBadState)
	}
	for {
		path, err := s.peer.path(ctx, s.route)
		if err != nil {
			return nil, err
		}
		p, err := s.makePlan(path)
		if err == nil {
			s.plan.Store(p)
			return p, nil
		}
		if path.err() == nil || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (s *Session) makePlan(p *path) (*plan, error) {
	rmr, err := p.regions.of(p, &s.remote)
	if err != nil {
		return nil, err
	}
	mr, err := s.local.MRDesc(p.tr)
	if err != nil {
		return nil, err
	}
	to := batch.Target{Local: s.local.Desc().Data, Remote: rmr.Base(), MR: mr, Key: rmr.Key(),
		OpMax: s.route.backend.config.opBytes(p.tr), SegMax: p.tr.SegMax(), BlockMax: p.tr.BlockLimit()}
	return &plan{path: p, to: to}, nil
}

// verify asks the peer whether the remote region exists as described.
func (s *Session) verify(ctx context.Context) error {
	return s.peer.askRegion(ctx, s.remote)
}
