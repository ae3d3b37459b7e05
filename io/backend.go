// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"mori/core"
	"mori/core/config"
)

// A backend is a family of transports that the user has asked for.
type backend struct {
	kind       BackendType
	config     *BackendConfig
	transports []*transport // in order of preference
	notes      []string     // what is missing and why
	removed    atomic.Bool
}

func (b *backend) names() []string {
	out := make([]string, 0, len(b.transports))
	for _, tr := range b.transports {
		out = append(out, tr.name)
	}
	return out
}

// CreateBackend opens a family of transports; nil means the default config. A backend that exists already is left
// alone. Memory and peers registered before are known to it.
func (e *Engine) CreateBackend(kind BackendType, cfg *BackendConfig) error {
	if cfg == nil {
		cfg = DefaultBackendConfig()
	}
	cfg = cfg.fromEnv(e.log)
	if err := cfg.validate(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed() {
		return fmt.Errorf("create backend %v: %w", kind, ErrClosed)
	}
	if e.backends[kind] != nil {
		e.log.Warn("backend exists already", "backend", kind)
		return nil
	}
	b, err := e.openBackend(kind, cfg)
	if err != nil {
		return fmt.Errorf("create backend %v: %w", kind, err)
	}
	e.backends[kind] = b
	e.startTick()
	process.join(e)
	e.log.Info("backend created", "backend", kind, "transports", b.names(), "notes", b.notes)
	return nil
}

// openBackend needs e.mu held.
func (e *Engine) openBackend(kind BackendType, cfg *BackendConfig) (*backend, error) {
	b := &backend{kind: kind, config: cfg}
	names, missing, err := core.Transports(kind.String())
	if err != nil {
		return nil, err
	}
	b.notes = missing
	if kind == BackendRDMA && len(missing) > 0 && config.Flag(config.RequireRDMA, false) {
		return nil, fmt.Errorf("%s is set and %s: %w", config.RequireRDMA, missing[0], ErrUnsupported)
	}
	if e.config.Port == portNone {
		return nil, fmt.Errorf("port %d means an engine that peers cannot reach: %w", portNone, ErrInvalid)
	}
	if err := e.startControl(); err != nil {
		return nil, err
	}
	for _, name := range names {
		tr, err := e.transport(name)
		if err != nil {
			b.notes = append(b.notes, fmt.Sprintf("%s is not available: %v", name, err))
			continue
		}
		b.transports = append(b.transports, tr)
	}
	if len(b.transports) == 0 {
		return nil, fmt.Errorf("no transport opened: %v: %w", b.notes, ErrUnsupported)
	}
	return b, nil
}

// startControl binds the control plane, once. It needs e.mu held.
func (e *Engine) startControl() error {
	if e.control != nil {
		return nil
	}
	c, err := listenControl(e, e.config.Host, e.config.Port)
	if err != nil {
		return err
	}
	e.control = c
	return nil
}

// transport opens the named transport, once, and gives it all registered memory. It needs e.mu held.
func (e *Engine) transport(name string) (*transport, error) {
	for _, tr := range e.transports {
		if tr.name == name {
			return tr, nil
		}
	}
	if e.registry == nil {
		sample, err := config.Int(config.IOSample, 0, 0, math.MaxInt32)
		if err != nil {
			e.log.Warn("environment variable ignored", "error", err)
		}
		r, err := core.Registry(core.Options{Filter: config.Get(config.FabricProvider), TLS: e.tls, Sums: config.Flag(config.IOChecksum, false), Sample: uint64(sample),
			Compress: config.Flag(config.IOCompress, false), Packed: &e.packed, Log: e.log})
		if err != nil {
			return nil, err
		}
		e.registry = r
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	tr, err := openTransport(ctx, e, name)
	if err != nil {
		return nil, err
	}
	for _, r := range e.store.allRegions() {
		if err := r.attach(tr); err != nil {
			return nil, errors.Join(err, tr.close())
		}
	}
	e.transports = append(e.transports, tr)
	return tr, nil
}

// openTransports lists what is open.
func (e *Engine) openTransports() []*transport {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*transport(nil), e.transports...)
}

// RemoveBackend drops a backend and closes its paths; their transfers fail. Unknown ones are ignored.
func (e *Engine) RemoveBackend(kind BackendType) error {
	e.mu.Lock()
	b := e.backends[kind]
	delete(e.backends, kind)
	e.mu.Unlock()
	if b == nil {
		return nil
	}
	b.removed.Store(true)
	for _, p := range e.store.allPeers() {
		p.closePath(b, fmt.Errorf("backend %v was removed: %w", kind, ErrBadState))
	}
	return nil
}

// wantsNotifications tells whether any backend has notifications on.
func (e *Engine) wantsNotifications() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.backends {
		if b.config.EnableNotification {
			return true
		}
	}
	return false
}

// backendFor chooses the backend for a pair: XGMI, FABRIC, RDMA, TCP, the first that can handle it.
func (e *Engine) backendFor(local, remote MemoryDesc) (*backend, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.backends) == 0 {
		return nil, fmt.Errorf("engine %q has no backend, create one first: %w", e.key, errNoBackend)
	}
	if local.Loc == LocGPU || remote.Loc == LocGPU {
		return nil, fmt.Errorf("region %d of %q or region %d of %q is GPU memory, which this build moves on no path; create a backend that can first: %w",
			local.ID, local.EngineKey, remote.ID, remote.EngineKey, errNoBackend)
	}
	if remote.EngineKey == e.key && e.store.peerOf(e.key) == nil && e.control != nil {
		e.store.setPeer(newPeer(e, e.descLocked()))
	}
	p := e.store.peerOf(remote.EngineKey)
	if p == nil {
		return nil, fmt.Errorf("engine %q is not registered as a peer, so no created backend reaches it; create a backend and register the engine first: %w", remote.EngineKey, errNoBackend)
	}
	for _, kind := range []BackendType{BackendXGMI, BackendFabric, BackendRDMA, BackendTCP} {
		if b := e.backends[kind]; b != nil && p.desc.Port != portNone {
			return b, nil
		}
	}
	return nil, fmt.Errorf("engine %q has port %d, which no backend reaches; create a backend there first: %w", remote.EngineKey, p.desc.Port, errNoBackend)
}
