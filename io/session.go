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
	"mori/io/internal/backend"
	"mori/io/internal/batch"
	"mori/io/internal/gate"
	"mori/io/internal/message"
	"mori/io/internal/path"
	"mori/io/internal/peer"
	"mori/io/internal/serial"
	"mori/io/internal/transfer"
)

// MaxTag is the maximum length of a transfer's tag, in bytes.
const MaxTag = message.MaxTag

// CreateSession prepares transfers between a local and a remote region. It returns nil without an
// error if no backend can serve the pair, and logs why. It connects to the peer, and returns an
// error if that fails.
func (e *Engine) CreateSession(local, remote MemoryDesc) (*Session, error) {
	s, why := e.newSession(local, remote)
	if errors.Is(why, backend.ErrNone) {
		e.self.Log.Warn("no session", "local", local.ID, "peer", remote.EngineKey, "reason", why)
		return nil, nil
	}
	if why != nil {
		return nil, fmt.Errorf("create session: %w", why)
	}
	ctx, cancel := s.peer.Limit(s.route.Backend.Config.ControlTimeout())
	defer cancel()
	if err := s.peer.Verify(ctx, &s.remote); err != nil {
		return nil, fmt.Errorf("create session: %w", err)
	}
	if _, err := s.readyWithin(ctx); err != nil {
		return nil, fmt.Errorf("create session: %w", err)
	}
	return s, nil
}

// newSession checks the descriptors and chooses the backend, without any I/O.
func (e *Engine) newSession(local, remote MemoryDesc) (*Session, error) {
	if e.closed.Load() {
		return nil, ErrClosed
	}
	r := e.regions.Of(local, e.self.Key)
	if r == nil {
		return nil, fmt.Errorf("local region %d of engine %q is not registered with engine %q: %w",
			local.ID, local.EngineKey, e.self.Key, ErrNotFound)
	}
	p, facts := e.peerOf(remote.EngineKey)
	way, skipped, err := e.backends.Choose(r, &remote, facts)
	if err != nil {
		return nil, err
	}
	s := &Session{engine: e, peer: p, route: way, skipped: skipped, remote: remote,
		limit: way.Backend.Config.Deadline()}
	s.pair = transfer.Pair{Pending: p.Pending, Local: r, Remote: remote.ID, Mover: s,
		Notify: way.Backend.Config.EnableNotification, GPUs: way.Backend.Kind == BackendXGMI}
	return s, nil
}

// peerOf returns a registered peer and its properties for the choice of a backend, nil if the peer
// is unknown. It registers the engine itself at first use.
func (e *Engine) peerOf(key string) (*peer.Peer, *backend.Peer) {
	if d, listens := e.backends.Desc(); listens && key == e.self.Key {
		e.peers.PutFirst(key, func() *peer.Peer { return peer.New(&e.shared, d) })
	}
	p := e.peers.Get(key)
	if p == nil {
		return nil, nil
	}
	return p, &backend.Peer{Port: p.Desc.Port, SameNode: p.SameNode()}
}

// SessionFor is CreateSession for transfers without a session of their own. If no backend can serve
// the pair, it returns a nil session and the status for each such transfer.
func (e *Engine) SessionFor(local, remote MemoryDesc) (*Session, *Status, error) {
	s, err := e.newSession(local, remote)
	if errors.Is(err, backend.ErrNone) {
		return nil, transfer.NewFailed(CodeErrBadState, err.Error()), nil
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := s.peer.Limit(s.route.Backend.Config.ControlTimeout())
	defer cancel()
	if err := s.peer.Verify(ctx, &s.remote); err != nil {
		return nil, nil, err
	}
	_, err = s.readyWithin(ctx)
	return s, nil, err
}

// A Session moves bytes between one local and one remote region. It is safe for concurrent use and
// needs no closing.
type Session struct {
	pair    transfer.Pair
	engine  *Engine
	peer    *peer.Peer
	route   *backend.Route
	skipped []string // why no better backend serves the pair
	remote  MemoryDesc
	limit   time.Duration

	plan atomic.Pointer[plan]
	mu   serial.Mutex // held while a plan is made
}

// A plan holds what a session has computed for the present path.
type plan struct {
	path *path.Path
	to   batch.Target
}

// A Request is one transfer with one Status: entries copied between the two regions of a Session.
// Submit keeps none of its slices.
type Request struct {
	Write         bool     // from local to remote if set, else from remote to local
	Local, Remote []uint64 // offsets in bytes, one of each per entry
	Sizes         []uint64 // bytes of each entry
	BlockSize     uint64   // if not 0, the size of every entry; Sizes is ignored
	UID           uint64

	// Tag names the transfer in messages, statistics and traces, and at the peer
	// (Engine.InboundTag), where it may arrive after the bytes. It has up to MaxTag bytes of UTF-8;
	// empty means no tag.
	Tag string

	// After delays the transfer until a GPU has reached a point. Submit does not block for it. The
	// deadline counts from Submit, and the transfer keeps its place in the order of successes. If
	// the GPU reports an error, the transfer fails with that error.
	After After

	// Deadline is the time limit, counted from Submit. 0 means the session's limit, NoDeadline
	// none.
	Deadline time.Duration
}

// NoDeadline is the Deadline of a Request without a time limit.
const NoDeadline time.Duration = -1

// Read copies sz[i] bytes from remote offset ro[i] to local offset lo[i], for each i.
func (s *Session) Read(lo, ro, sz []uint64, uid uint64) *Status {
	return s.Submit(&Request{Local: lo, Remote: ro, Sizes: sz, UID: uid})
}

// Write copies sz[i] bytes from local offset lo[i] to remote offset ro[i], for each i.
func (s *Session) Write(lo, ro, sz []uint64, uid uint64) *Status {
	return s.Submit(&Request{Write: true, Local: lo, Remote: ro, Sizes: sz, UID: uid})
}

// Ready reports whether a submission would start immediately, without connecting first and without
// waiting for pending transfers to end.
func (s *Session) Ready() bool {
	return s.connected() && s.pair.Pending.Order.HasRoom(s.engine.maxPending)
}

// connected reports whether there is a plan for an open path.
func (s *Session) connected() bool {
	p := s.plan.Load()
	return p != nil && p.path.Usable() && !s.route.Backend.Removed()
}

// Alive reports whether submissions can still succeed: engine open, local region registered, peer
// known.
func (s *Session) Alive() bool {
	return !s.engine.closed.Load() && !s.route.Backend.Removed() && s.pair.Local.Open() &&
		s.engine.peers.Get(s.remote.EngineKey) == s.peer
}

// AllocateTransferUID calls Engine.AllocateTransferUID.
func (s *Session) AllocateTransferUID() uint64 { return s.engine.AllocateTransferUID() }

// Submit starts a transfer and reports its errors through the Status. If the request is invalid,
// nothing is copied. The first call blocks while it connects. A later call blocks only while too
// many transfers to the peer are pending (MORI_IO_MAX_PENDING). After the transfer's deadline, or
// 30 s, it fails with ErrBadState. While a path is broken, transfers wait for a new one. If
// BlockSize is set, others may write to the slices of the Request during Submit: it reads each
// offset once.
func (s *Session) Submit(r *Request) *Status {
	kind := fabric.OpRead
	if r.Write {
		kind = fabric.OpWrite
	}
	b := batch.New()
	e := batch.Entries{Local: r.Local, Remote: r.Remote, Sizes: r.Sizes, Size: r.BlockSize,
		One: r.BlockSize > 0}
	total, err := b.Accept(&e, s.pair.Local.Desc().Size, s.remote.Size)
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
	limit, order := s.limitOf(r), &s.pair.Pending.Order
	if err == nil && !order.Room(s.engine.maxPending, roomWait(limit)) {
		err = fmt.Errorf("%d transfers to %q are pending (each %d entries of a batch count as one more), and none ended in %v: wait for some first, or raise %s: %w",
			order.Load(), s.remote.EngineKey, transfer.LoadEntries, roomWait(limit), config.IOMaxPending, ErrBadState)
	}
	var g *gate.Gate
	if err == nil {
		g, err = s.gate(r.After)
	}
	if err != nil {
		b.Release()
		return s.refused(err)
	}
	start := transfer.Now()
	b.Build(kind, &p.to, total, &e)
	t := s.pair.Submit(p.path.Ledger(), &transfer.Params{Kind: kind, UID: r.UID, Tag: r.Tag, Start: start,
		Limit: limit, Entries: len(e.Local), Total: total, Batch: b, To: &p.to})
	st := t.Status // t may end and be reused from here on
	if r.Tag != "" {
		s.peer.Tags.Add(message.Tag{UID: r.UID, Text: r.Tag, Region: s.remote.Key()})
	}
	switch {
	case g != nil:
		s.peer.Hold(g, t)
	case broken:
		s.peer.Replay(p.path, []*transfer.Transfer{t}) // waits for a path, without blocking the caller
	default:
		p.path.Start(t)
	}
	return st
}

// limitOf returns the time limit of a transfer, 0 for none.
func (s *Session) limitOf(r *Request) time.Duration {
	switch {
	case r.Deadline < 0:
		return 0
	case r.Deadline > 0:
		return r.Deadline
	}
	return s.limit
}

// mostRoomWait limits how long a submission waits while too many transfers are pending.
const mostRoomWait = 30 * time.Second

// roomWait returns how long a submission may wait while too many transfers are pending.
func roomWait(limit time.Duration) time.Duration {
	if limit > 0 {
		return min(limit, mostRoomWait)
	}
	return mostRoomWait
}

// gate returns the gate that the transfer waits for, nil if none, and enters the local region.
func (s *Session) gate(after After) (g *gate.Gate, err error) {
	if after != (After{}) {
		if g, err = s.engine.gates.Arm(after); err != nil {
			return nil, peer.AfterFailed(err)
		}
	}
	if s.pair.Local.Enter() {
		return g, nil
	}
	err = s.pair.Local.Gone()
	if g != nil {
		err = errors.Join(err, s.engine.gates.Release(g, false))
	}
	return nil, err
}

// broken returns the session's plan if its path has ended.
func (s *Session) broken() (*plan, bool) {
	p := s.plan.Load()
	return p, p != nil && p.path.Err() != nil && !s.route.Backend.Removed()
}

// WithDeadline returns a session between the same regions with another deadline for its transfers;
// 0 = none. The two sessions share everything else.
func (s *Session) WithDeadline(limit time.Duration) *Session {
	d := &Session{engine: s.engine, peer: s.peer, route: s.route, skipped: s.skipped, remote: s.remote,
		limit: limit, pair: s.pair}
	d.pair.Mover = d
	d.plan.Store(s.plan.Load())
	return d
}

// refused returns the status of a transfer that was not started.
func (s *Session) refused(err error) *Status {
	s.engine.self.Log.Error("transfer refused", "peer", s.remote.EngineKey, "reason", err)
	s.engine.meters.Refused.Add(1)
	return transfer.NewFailed(transfer.Outcome(err, err.Error(), s.pair.GPUs))
}

// ready returns the plan for an open path, and opens a path if there is none.
func (s *Session) ready() (*plan, error) {
	if s.connected() {
		return s.plan.Load(), nil
	}
	ctx, cancel := s.peer.Limit(s.route.Backend.Config.ControlTimeout())
	defer cancel()
	return s.readyWithin(ctx)
}

// readyWithin is ready, bounded by ctx.
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
	if s.route.Backend.Removed() {
		return nil, fmt.Errorf("backend %v was removed: %w", s.route.Backend.Kind, ErrBadState)
	}
	for {
		q, err := s.peer.Path(ctx, s.route)
		if err != nil {
			return nil, err
		}
		p, err := s.makePlan(q)
		if err == nil {
			s.plan.Store(p)
			return p, nil
		}
		if q.Err() == nil || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (s *Session) makePlan(p *path.Path) (*plan, error) {
	rmr, err := p.Import(&s.remote)
	if err != nil {
		return nil, err
	}
	tr := p.Transport()
	mr, err := s.pair.Local.MRDesc(tr)
	if err != nil {
		return nil, err
	}
	to := batch.Target{Local: s.pair.Local.Desc().Data, Remote: rmr.Base(), MR: mr, Key: rmr.Key(),
		OpMax: s.route.Backend.Config.OpBytes(tr), SegMax: tr.SegMax(), BlockMax: tr.BlockLimit()}
	return &plan{path: p, to: to}, nil
}

// Resume starts a parked transfer on the present path. It implements transfer.Resumer.
func (s *Session) Resume(t *transfer.Transfer) error {
	p, err := s.ready()
	if err != nil {
		return err
	}
	switch {
	case !s.pair.Pending.Parked.Take(t):
	case t.Failure() != nil:
		t.End()
	default:
		t.MoveTo(p.path.Ledger(), &p.to)
		p.path.Start(t)
	}
	return nil
}

// Cancel is Status.Cancel for all transfers of the session with this uid. It returns nil if there
// are none.
func (s *Session) Cancel(ctx context.Context, uid uint64) error { return s.pair.Cancel(ctx, uid) }
