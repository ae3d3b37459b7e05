// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"mori/core"
	"mori/core/config"
	"mori/core/fabric"
	"mori/core/limits"
	"mori/core/logging"
	"mori/io/internal/arrivals"
	"mori/io/internal/control"
	"mori/io/internal/gate"
	"mori/io/internal/identity"
	"mori/io/internal/region"
	"mori/io/internal/stall"
	"mori/io/internal/watch"
)

// idlePath is how long a path stays open that nobody uses.
const idlePath = 5 * time.Minute

// An Engine is one end of transfers: it registers memory, knows peers, and keeps the paths to them.
type Engine struct {
	self     control.Self
	config   EngineConfig // its port: guarded by backends.mu
	hostname string
	store    *store
	regions  region.Table
	backends backendTable
	uids     uidCounter
	meters   recorder
	arrived  *arrivals.Table
	tags     arrivals.Tags
	gates    gate.Set
	clock    clock
	stalls   stall.Traces
	endings  watch.Endings

	idle       time.Duration // a path that was not used for so long is closed; 0 = never
	maxPending int64         // transfers to one peer; 0 = no limit
	lease      time.Duration // see lease.go; 0 = none
	pace       pace          // of replays

	isClosed atomic.Bool
}

// NewEngine makes an engine. It opens nothing: threads and sockets come with the first backend.
func NewEngine(key string, cfg EngineConfig) (*Engine, error) {
	return newEngine(key, cfg, nil)
}

// newEngine takes the providers to use; nil means those of this build.
func newEngine(key string, cfg EngineConfig, registry *fabric.Registry) (*Engine, error) {
	if cfg.Port < 0 || cfg.Port > 65535 {
		return nil, fmt.Errorf("engine %q: port %d, want 0 to 65535: %w", key, cfg.Port, ErrInvalid)
	}
	if len(key) > MaxKey {
		return nil, fmt.Errorf("engine %.20q...: key of %d bytes, want at most %d: %w", key,
			len(key), MaxKey, ErrInvalid)
	}
	if err := limits.Descriptors(descriptorsOfEngine); err != nil {
		return nil, fmt.Errorf("engine %q: %w", key, err)
	}
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return nil, fmt.Errorf("engine %q: make an incarnation id: %w", key, err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	nodeID, err := core.NodeID(hostname)
	if err != nil {
		return nil, fmt.Errorf("engine %q: %w", key, err)
	}
	self := control.Self{Key: key, NodeID: nodeID, Incarnation: binary.BigEndian.Uint64(raw[:]) | 1,
		Log: logging.For("io").With("engine", key)}
	e := &Engine{self: self, config: cfg, hostname: hostname, idle: idlePath, pace: replayPace,
		store: newStore()}
	e.meters.born, e.gates.Log = time.Now(), self.Log
	e.stalls.Key, e.stalls.Log, e.stalls.Limit, e.stalls.Trace = key, self.Log, &process.stalls, e.WriteTrace
	e.backends.engine, e.backends.registry, e.backends.byKind = e, registry, map[BackendType]*backend{}
	if len(e.self.NodeID) > MaxKey {
		return nil, fmt.Errorf("engine %q: node id of %d bytes, want at most %d: %w", key,
			len(e.self.NodeID), MaxKey, ErrInvalid)
	}
	e.arrived = arrivals.NewTable(e.store.isRegistered)
	if e.self.Signer, err = identity.NewSigner(); err != nil {
		return nil, fmt.Errorf("engine %q: %w", key, err)
	}
	config.ReportUnknown(e.self.Log)
	ms, err := config.Int(config.IOLease, 15000, 0, 86400000)
	if err != nil {
		e.self.Log.Warn("environment variable ignored", "error", err)
	}
	e.lease = time.Duration(ms) * time.Millisecond
	pending, err := config.Int(config.IOMaxPending, 65536, 0, math.MaxInt32)
	if err != nil {
		e.self.Log.Warn("environment variable ignored", "error", err)
	}
	e.maxPending = int64(pending)
	if e.self.TLS, err = core.TLS(config.Get(config.TLSCert), config.Get(config.TLSKey),
		config.Get(config.TLSCA)); err != nil {
		return nil, fmt.Errorf("engine %q: %w", key, err)
	}
	if e.self.Secret = identity.Secret(cfg.AuthSecret); e.self.Secret == "" {
		e.self.Secret = identity.Secret(config.Get(config.AuthSecret))
	}
	return e, nil
}

func (e *Engine) closed() bool { return e.isClosed.Load() }

// Desc describes the engine for peers. Its port is real once a backend that listens was created.
func (e *Engine) Desc() EngineDesc { return e.backends.desc() }

// AllocateTransferUID returns 0, 1, 2 ...
func (e *Engine) AllocateTransferUID() uint64 { return e.uids.take() }

// RegisterRemoteEngine makes a peer known, without any network traffic. The same descriptor again
// changes nothing; a new one of the same key replaces the old, whose paths are closed. If it has
// another incarnation, RegisterRemoteEngine also closes the connections that former incarnations
// have to us, and refuses their later ones. When it returns, no byte of a former incarnation can
// land any more; it waits for that for as long as the provider waits for a peer that does not
// answer (5 s).
func (e *Engine) RegisterRemoteEngine(d EngineDesc) error {
	if e.closed() {
		return fmt.Errorf("register remote engine %q: %w", d.Key, ErrClosed)
	}
	if old := e.store.peerOf(d.Key); old != nil && old.desc == d {
		return nil
	}
	e.replace(e.store.setPeer(newPeer(e, d)), d.ID(),
		fmt.Errorf("engine %q was registered anew: %w", d.Key, ErrBadState))
	return nil
}

// replace ends the registration old, which may be nil. It closes the connections of all
// incarnations of the same engine but keep, and forgets what they have sent; where keep is
// registered without an incarnation, it leaves both alone.
func (e *Engine) replace(old *peer, keep identity.ID, reason error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if old != nil {
		wg.Add(1)
		go func() {
			defer wg.Done()
			old.close(reason)
		}()
	}
	if keep.Incarnation == 0 && e.store.peerOf(keep.Key) != nil {
		return
	}
	former := func(who identity.ID) bool { return who.Key == keep.Key && !who.Is(keep) }
	e.backends.disconnect(former)
	e.arrived.Forget(former)
	e.tags.Forget(former)
}

// DeregisterRemoteEngine forgets a peer and what it has sent, and closes the connections in both
// directions, as RegisterRemoteEngine does. The peer is refused until it is registered again.
// Unknown peers are ignored.
func (e *Engine) DeregisterRemoteEngine(d EngineDesc) error {
	if old := e.store.removePeer(d.Key); old != nil {
		e.replace(old, identity.ID{Key: d.Key},
			fmt.Errorf("engine %q was deregistered: %w", d.Key, ErrBadState))
	}
	return nil
}

// PopInbound reports whether the transfer uid of the incarnation that is registered under key has
// arrived here completely. It does not consume.
func (e *Engine) PopInbound(key string, uid uint64) bool {
	who, ok := e.store.registered(key)
	return ok && e.backends.wantsNotifications() && e.arrived.Has(who, uid)
}

// InboundTag returns the tag of the transfer uid of the incarnation that is registered under key,
// if the transfer had one and it has arrived. Asking does not consume. InboundTag remembers the
// last 16384 tags of each registered engine; all other engines share as many.
func (e *Engine) InboundTag(key string, uid uint64) (tag string, ok bool) {
	who, ok := e.store.registered(key)
	if !ok {
		return "", false
	}
	return e.tags.Find(who, uid)
}

// CreateSession prepares transfers between a local and a remote region. A nil session without error
// means that no backend can serve the pair; the log says why. It connects to the peer, and an error
// says what stood in the way.
func (e *Engine) CreateSession(local, remote MemoryDesc) (*Session, error) {
	s, why := e.newSession(local, remote)
	if errors.Is(why, errNoBackend) {
		e.self.Log.Warn("no session", "local", local.ID, "peer", remote.EngineKey, "reason", why)
		return nil, nil
	}
	if why != nil {
		return nil, fmt.Errorf("create session: %w", why)
	}
	ctx, cancel := s.peer.controlContext(s.route.backend)
	defer cancel()
	if err := s.verify(ctx); err != nil {
		return nil, fmt.Errorf("create session: %w", err)
	}
	if _, err := s.readyWithin(ctx); err != nil {
		return nil, fmt.Errorf("create session: %w", err)
	}
	return s, nil
}

// errNoBackend is the reason when no backend can serve a pair.
var errNoBackend = fmt.Errorf("no backend can serve this pair: %w", ErrBadState)

// newSession checks the descriptors and chooses the backend, without any I/O.
func (e *Engine) newSession(local, remote MemoryDesc) (*Session, error) {
	if e.closed() {
		return nil, ErrClosed
	}
	r := e.regions.Of(local, e.self.Key)
	if r == nil {
		return nil, fmt.Errorf("local region %d of engine %q is not registered with engine %q: %w",
			local.ID, local.EngineKey, e.self.Key, ErrNotFound)
	}
	way, skipped, err := e.backends.routeFor(r, &remote)
	if err != nil {
		return nil, err
	}
	b := way.backend
	return &Session{engine: e, peer: e.store.peerOf(remote.EngineKey), route: way, skipped: skipped,
		local: r, remote: remote,
		notify: b.config.EnableNotification, limit: time.Duration(b.config.DeadlineMS) * time.Millisecond}, nil
}

// SessionFor is CreateSession for transfers without a session of their own. When no backend can
// serve the pair it returns nil and the status that each such transfer gets.
func (e *Engine) SessionFor(local, remote MemoryDesc) (*Session, *Status, error) {
	s, err := e.newSession(local, remote)
	if errors.Is(err, errNoBackend) {
		return nil, failedStatus(CodeErrBadState, err.Error()), nil
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := s.peer.controlContext(s.route.backend)
	defer cancel()
	if err := s.verify(ctx); err != nil {
		return nil, nil, err
	}
	_, err = s.readyWithin(ctx)
	return s, nil, err
}

// FD is a descriptor for poll, epoll and event loops that becomes readable when transfers of e end.
// Reading its 8 bytes makes it not readable until the next one; check statuses after that. It is
// the engine's, which closes it.
func (e *Engine) FD() (int, error) { return e.endings.FD() }

// controlContext bounds one exchange of the control plane.
func (e *Engine) controlContext(b *backend) (context.Context, context.CancelFunc) {
	if ms := b.config.controlTimeoutMilli; ms > 0 {
		return context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
	}
	return context.WithCancel(context.Background())
}

// Close ends every transfer with an error, closes all paths and listeners, and returns all memory.
// When it returns nobody touches registered memory any more. Further calls do nothing.
func (e *Engine) Close() error {
	if e.isClosed.Swap(true) {
		return nil
	}
	server, transports := e.backends.opened()
	if server != nil {
		server.Close()
	}
	for _, p := range e.store.allPeers() {
		p.close(ErrClosed)
	}
	e.clock.end()
	process.leave(e)
	e.stalls.Close()
	all := errors.Join(e.gates.Close(), e.regions.RevokeAll())
	for _, tr := range transports {
		all = errors.Join(all, tr.Close())
	}
	return errors.Join(all, e.endings.Close())
}

// tick is what the clock does: it looks for transfers past their deadline, for backlogs, for paths
// to mend or to close, and for notifications that nobody asked for.
func (e *Engine) tick() {
	e.arrived.Drain()
	e.meters.Sample(time.Since(e.meters.born))
	for _, p := range e.store.allPeers() {
		p.expire(time.Now())
		p.nudge()
		p.heal(time.Now())
		p.life.beat(p, time.Now())
	}
}
