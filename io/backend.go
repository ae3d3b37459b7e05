// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"sync/atomic"

	"mori/core"
	"mori/core/limits"
	"mori/io/internal/control"
	"mori/io/internal/region"
	"mori/io/internal/transport"
)

// A backend is a family of transports that the user has asked for.
type backend struct {
	kind    BackendType
	config  *BackendConfig
	host    *route   // for pairs of host memory; nil: it does not serve them
	gpu     *route   // for pairs with GPU memory at one end or both; host, if both have the same transports
	notes   []string // what is missing and why
	removed atomic.Bool
}

// routes are those of b, each once.
func (b *backend) routes() []*route {
	switch {
	case b.host == nil:
		return []*route{b.gpu}
	case b.host == b.gpu:
		return []*route{b.host}
	}
	return []*route{b.host, b.gpu}
}

// outcome is how the end of a transfer over b is reported: a failure between GPUs has a text and a
// code of its own, and success has no text.
func (b *backend) outcome(err error, text string) (StatusCode, string) {
	code := CodeSuccess
	if err != nil {
		code = codeOf(err)
	}
	switch {
	case b.kind != BackendXGMI:
		return code, text
	case err == nil:
		return code, ""
	case code == CodeErrRDMAOp:
		code = CodeErrGPUOp
	}
	return code, "XGMI: " + text
}

// CreateBackend opens a family of transports; nil means the default config. A backend that exists
// already is left alone. Memory and peers registered before are known to it.
func (e *Engine) CreateBackend(kind BackendType, cfg *BackendConfig) error {
	if cfg == nil {
		cfg = DefaultBackendConfig()
	}
	cfg = cfg.fromEnv(e.self.Log)
	if err := cfg.validate(); err != nil {
		return err
	}
	return e.backends.create(kind, cfg)
}

// RemoveBackend drops a backend and closes its paths; their transfers fail. Unknown ones are
// ignored.
func (e *Engine) RemoveBackend(kind BackendType) error {
	b := e.backends.remove(kind)
	if b == nil {
		return nil
	}
	b.removed.Store(true)
	for _, p := range e.store.allPeers() {
		for _, r := range b.routes() {
			p.closePath(r, fmt.Errorf("backend %v was removed: %w", kind, ErrBadState))
		}
	}
	return nil
}

// A route is the transports of a backend for one kind of pair, in order of preference. Each path
// belongs to one: pairs of host memory and pairs with GPU memory have their own connections, which
// fail and heal apart.
type route struct {
	backend    *backend
	gpu        bool
	transports []*transport.Transport
	notes      []string // what better ones are missing and why
}

func (r *route) names() []string {
	out := []string{}
	if r != nil {
		for _, tr := range r.transports {
			out = append(out, tr.Name())
		}
	}
	return out
}

// memory says for which pairs the route is.
func (r *route) memory() string {
	switch {
	case r.backend.host == r.backend.gpu:
		return "any"
	case r.gpu:
		return "gpu"
	}
	return "host"
}

// openRoute opens the named transports, nil if there is no name. It needs t.mu held.
func (t *backendTable) openRoute(b *backend, gpu bool, names []string) (*route, error) {
	if len(names) == 0 {
		return nil, nil
	}
	r := &route{backend: b, gpu: gpu, notes: append([]string(nil), b.notes...)}
	for _, name := range names {
		tr, err := t.transport(name)
		if limits.IsShort(err) { // it would be missing for the life of the engine
			return nil, fmt.Errorf("%s is not available: %w", name, err)
		}
		if err != nil {
			r.notes = append(r.notes, fmt.Sprintf("%s is not available: %v", name, err))
			continue
		}
		r.transports = append(r.transports, tr)
	}
	if len(r.transports) == 0 {
		return nil, fmt.Errorf("no transport opened: %v: %w", r.notes, ErrUnsupported)
	}
	return r, nil
}

// routeFor chooses the backend for a pair: XGMI, FABRIC, RDMA, TCP, the first that can handle it,
// and says why each earlier one can't.
func (t *backendTable) routeFor(local *region.Region, remote *MemoryDesc) (r *route, skipped []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byKind) == 0 {
		return nil, nil, fmt.Errorf("engine %q has no backend, create one first: %w",
			t.engine.self.Key, errNoBackend)
	}
	if remote.EngineKey == t.engine.self.Key && t.engine.store.peerOf(t.engine.self.Key) == nil &&
		t.control != nil {
		t.engine.store.setPeer(newPeer(t.engine, t.descLocked()))
	}
	p := t.engine.store.peerOf(remote.EngineKey)
	if p == nil {
		return nil, nil, fmt.Errorf("engine %q is not registered as a peer, so no created backend reaches it; create a backend and register the engine first: %w", remote.EngineKey, errNoBackend)
	}
	for _, kind := range preference {
		b := t.byKind[kind]
		if b == nil {
			continue
		}
		r := b.host
		if local.Desc().Loc == LocGPU || remote.Loc == LocGPU {
			r = b.gpu
		}
		why := ""
		switch {
		case kind == BackendXGMI:
			why = p.beyondXGMI(local, remote)
		case p.desc.Port == control.PortNone && remote.EngineKey != t.engine.self.Key:
			why = fmt.Sprintf("engine %q has port %d, which only XGMI reaches", remote.EngineKey,
				control.PortNone)
		}
		if why == "" {
			return r, skipped, nil
		}
		skipped = append(skipped, fmt.Sprintf("%v: %s", kind, why))
	}
	return nil, nil, fmt.Errorf("region %d of %q and region %d of %q: %v; create a backend that can, on both sides, first: %w", local.Desc().ID, t.engine.self.Key, remote.ID,
		remote.EngineKey, skipped, errNoBackend)
}

// beyondXGMI says why a pair is not two GPUs' memory on this host that reach each other, "" if it
// is.
func (p *peer) beyondXGMI(local *region.Region, remote *MemoryDesc) string {
	switch {
	case local.Desc().Loc != LocGPU || remote.Loc != LocGPU:
		return "not both regions are GPU memory"
	case !p.sameNode():
		return core.OtherHost
	}
	return local.Unreached(remote)
}

// sameNode reports whether the peer is on this host.
func (p *peer) sameNode() bool {
	if p.desc.NodeID == "" || p.engine.self.NodeID == "" {
		return p.desc.Hostname == p.engine.hostname
	}
	return p.desc.NodeID == p.engine.self.NodeID
}
