// SPDX-License-Identifier: MIT

package io

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
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
	"mori/io/internal/backend"
	"mori/io/internal/control"
	"mori/io/internal/gate"
	"mori/io/internal/identity"
	"mori/io/internal/meter"
	"mori/io/internal/peer"
	"mori/io/internal/region"
	"mori/io/internal/stall"
	"mori/io/internal/transfer"
	"mori/io/internal/watch"
)

// idlePath is how long an unused path stays open.
const idlePath = 5 * time.Minute

// descriptorsOfEngine is the number of file descriptors that an engine opens: the runtime's network
// poller and the host's identity.
const descriptorsOfEngine = 4

// EngineConfig is where an engine's control plane listens.
type EngineConfig struct {
	Host string // address or name to bind and to advertise; "" binds the loopback address only
	Port int    // 0 lets the system choose

	// AuthSecret is shared by all engines that may talk to each other. The control plane refuses
	// all others. If it is empty, MORI_AUTH_SECRET is used; if that is empty too, any engine may
	// connect.
	AuthSecret string
}

// An Engine is one end of transfers: it registers memory, knows peers, and keeps the paths to them.
type Engine struct {
	self     control.Self
	peers    *peer.Table
	shared   peer.Config // of peers
	regions  region.Table
	backends *backend.Table
	uids     atomic.Uint64 // the next uid
	meters   meter.Recorder
	arrived  *arrivals.Table
	tags     arrivals.Tags
	gates    gate.Set
	clock    clock
	stalls   stall.Traces
	endings  watch.Endings

	maxPending int64 // bounds pending transfers to one peer; 0 = no limit

	closed atomic.Bool
}

// NewEngine returns an engine. It starts no thread and opens no socket; the first backend does.
func NewEngine(key string, cfg EngineConfig) (*Engine, error) {
	return newEngine(key, cfg, nil)
}

// newEngine uses the given providers; nil means those of this build.
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
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	self, err := newSelf(key, hostname, cfg.AuthSecret)
	if err != nil {
		return nil, fmt.Errorf("engine %q: %w", key, err)
	}
	e := &Engine{self: self, peers: peer.NewTable()}
	config.ReportUnknown(e.self.Log)
	e.meters.Born, e.gates.Log = time.Now(), e.self.Log
	e.arrived = arrivals.NewTable(e.peers.IsRegistered)
	e.stalls.Key, e.stalls.Log, e.stalls.Limit, e.stalls.Trace = key, e.self.Log, &process.stalls, e.WriteTrace
	e.backends = backend.NewTable(backend.TableConfig{Self: &e.self, Answers: controlHost{e},
		Host: cfg.Host, Port: cfg.Port, Hostname: hostname, Registry: registry, Regions: &e.regions,
		Arrivals: e.arrived, Packed: &e.meters.Packed, Created: e.join})
	lease := number(e.self.Log, config.IOLease, 15000, 86400000)
	e.shared = peer.Config{Self: &e.self, Hostname: hostname, Gates: &e.gates,
		Reporter: &transfer.Reporter{Log: e.self.Log, Recorder: &e.meters, Endings: &e.endings, Stalls: &e.stalls},
		HasXGMI:  func() bool { return e.backends.Has(BackendXGMI) },
		Idle:     idlePath, Lease: time.Duration(lease) * time.Millisecond, Pace: peer.DefaultPace}
	e.maxPending = int64(number(e.self.Log, config.IOMaxPending, 65536, math.MaxInt32))
	return e, nil
}

// newSelf returns an engine's identity and the keys that prove it.
func newSelf(key, hostname, secret string) (s control.Self, err error) {
	s.Key, s.Log = key, logging.For("io").With("engine", key)
	if s.NodeID, err = core.NodeID(hostname); err != nil {
		return s, err
	}
	if len(s.NodeID) > MaxKey {
		return s, fmt.Errorf("node id of %d bytes, want at most %d: %w", len(s.NodeID), MaxKey, ErrInvalid)
	}
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return s, fmt.Errorf("make an incarnation id: %w", err)
	}
	s.Incarnation = binary.BigEndian.Uint64(raw[:]) | 1
	if s.Signer, err = identity.NewSigner(); err != nil {
		return s, err
	}
	if s.TLS, err = core.TLS(config.Get(config.TLSCert), config.Get(config.TLSKey),
		config.Get(config.TLSCA)); err != nil {
		return s, err
	}
	s.Secret = identity.Secret(cmp.Or(secret, config.Get(config.AuthSecret)))
	return s, nil
}

// number reads an environment variable as a number from 0 to most. If it is malformed, number logs
// a warning and returns def.
func number(log *slog.Logger, name string, def, most int) int {
	n, err := config.Int(name, def, 0, most)
	if err != nil {
		log.Warn("environment variable ignored", "error", err)
	}
	return n
}

// join starts what an engine with a backend needs: the clock and the process-wide HTTP server.
func (e *Engine) join() {
	e.clock.start(e.tick)
	process.join(e)
}

// Desc describes the engine for peers. Its port is valid once a backend that listens exists.
func (e *Engine) Desc() EngineDesc {
	d, _ := e.backends.Desc()
	return d
}

// AllocateTransferUID returns 0, 1, 2 ...
func (e *Engine) AllocateTransferUID() uint64 { return e.uids.Add(1) - 1 }

// CreateBackend opens a family of transports; a nil config means the defaults. It does nothing if
// the backend exists. Memory and peers may be registered before or after.
func (e *Engine) CreateBackend(kind BackendType, cfg *BackendConfig) error {
	if cfg == nil {
		cfg = DefaultBackendConfig()
	}
	cfg = cfg.FromEnv(e.self.Log)
	if err := cfg.Validate(); err != nil {
		return err
	}
	return e.backends.Create(kind, cfg)
}

// RemoveBackend removes a backend and closes its paths. Their transfers fail. It ignores a backend
// that does not exist.
func (e *Engine) RemoveBackend(kind BackendType) error {
	b := e.backends.Remove(kind)
	if b == nil {
		return nil
	}
	for _, p := range e.peers.All() {
		for _, r := range b.Routes() {
			p.ClosePath(r, fmt.Errorf("backend %v was removed: %w", kind, ErrBadState))
		}
	}
	return nil
}

// RegisterRemoteEngine makes a peer known, without any network traffic. Registering the same
// descriptor again changes nothing. A new descriptor with the same key replaces the old one and
// closes its paths. If the incarnation differs, RegisterRemoteEngine also closes the connections of
// former incarnations to this engine and refuses new ones. When it returns, no former incarnation
// can write to this process. It blocks for that, for as long as the provider waits for a peer that
// does not answer (5 s).
func (e *Engine) RegisterRemoteEngine(d EngineDesc) error {
	if e.closed.Load() {
		return fmt.Errorf("register remote engine %q: %w", d.Key, ErrClosed)
	}
	if old := e.peers.Get(d.Key); old != nil && old.Desc == d {
		return nil
	}
	e.replace(e.peers.Put(peer.New(&e.shared, d)), d.ID(),
		fmt.Errorf("engine %q was registered anew: %w", d.Key, ErrBadState))
	return nil
}

// replace ends the registration old, which may be nil. It closes the connections of all
// incarnations of the engine except keep, and forgets their arrivals and tags. If keep is
// registered without an incarnation, replace leaves connections, arrivals and tags alone.
func (e *Engine) replace(old *peer.Peer, keep identity.ID, reason error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if old != nil {
		wg.Add(1)
		go func() {
			defer wg.Done()
			old.Close(reason)
		}()
	}
	if keep.Incarnation == 0 && e.peers.Get(keep.Key) != nil {
		return
	}
	former := func(who identity.ID) bool { return who.Key == keep.Key && !who.Is(keep) }
	e.backends.Disconnect(former)
	e.arrived.Forget(former)
	e.tags.Forget(former)
}

// DeregisterRemoteEngine forgets a peer and what it has sent, and closes the connections in both
// directions, as RegisterRemoteEngine does. The engine refuses the peer until it is registered
// again. Unknown peers are ignored.
func (e *Engine) DeregisterRemoteEngine(d EngineDesc) error {
	if old := e.peers.Remove(d.Key); old != nil {
		e.replace(old, identity.ID{Key: d.Key},
			fmt.Errorf("engine %q was deregistered: %w", d.Key, ErrBadState))
	}
	return nil
}

// PopInbound reports whether transfer uid has arrived completely, from the incarnation registered
// under key. Despite its name it does not consume the arrival.
func (e *Engine) PopInbound(key string, uid uint64) bool {
	who, ok := e.peers.Registered(key)
	return ok && e.backends.Notifies() && e.arrived.Has(who, uid)
}

// InboundTag returns the tag of transfer uid, from the incarnation registered under key, if the
// transfer had one and it has arrived. It does not consume the tag. The engine keeps the last 16384
// tags of each registered engine, and as many of all other engines together.
func (e *Engine) InboundTag(key string, uid uint64) (tag string, ok bool) {
	who, ok := e.peers.Registered(key)
	if !ok {
		return "", false
	}
	return e.tags.Find(who, uid)
}

// FD returns a descriptor for poll, epoll and event loops that becomes readable when transfers of e
// end. Read its 8 bytes to reset it, then check the statuses. The engine owns the descriptor and
// closes it.
func (e *Engine) FD() (int, error) { return e.endings.FD() }

// Close fails every pending transfer, closes all paths and listeners, and revokes all regions. When
// it returns, nothing accesses registered memory any more. Further calls do nothing.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	transports := e.backends.Close()
	for _, p := range e.peers.All() {
		p.Close(ErrClosed)
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

// tick runs on each clock period: peers check their transfers and paths, and the engine records
// notifications that nobody has asked for.
func (e *Engine) tick() {
	e.arrived.Drain()
	e.meters.Sample(time.Since(e.meters.Born))
	for _, p := range e.peers.All() {
		p.Tick(time.Now())
	}
}
