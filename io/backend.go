// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"mori/core"
	"mori/core/config"
	"mori/core/device"
	"mori/core/limits"
	"mori/io/internal/control"
)

// A backend is a family of transports that the user has asked for.
type backend struct {
	kind    BackendType
	config  *BackendConfig
	host    *route   // for pairs of host memory; nil: it does not serve them
	gpu     *route   // for pairs with GPU memory at one end or both; the same as host where both have the same transports
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

// outcome is how the end of a transfer over b is told: what goes wrong between GPUs has words and a
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
func (e *Engine) CreateBackend(kind BackendType, cfg *BackendConfig) (err error) {
	if cfg == nil {
		cfg = DefaultBackendConfig()
	}
	cfg = cfg.fromEnv(e.self.Log)
	if err := cfg.validate(); err != nil {
		return err
	}
	e.mu.Lock()
	defer func() {
		discarded := e.discarded
		e.discarded = nil
		e.mu.Unlock()
		for _, discard := range discarded {
			err = errors.Join(err, discard())
		}
	}()
	if e.closed() {
		return fmt.Errorf("create backend %v: %w", kind, ErrClosed)
	}
	if e.backends[kind] != nil {
		e.self.Log.Warn("backend exists already", "backend", kind)
		return nil
	}
	if err := checkLimits(kind); err != nil {
		return fmt.Errorf("create backend %v: %w", kind, err)
	}
	f, err := core.Transports(kind.String())
	if err != nil {
		return fmt.Errorf("create backend %v: %w", kind, err)
	}
	if kind == BackendRDMA {
		if done, err := e.autoXGMI(cfg, f); done || err != nil {
			return err
		}
	}
	return e.addBackend(kind, cfg, f)
}

// How many descriptors are opened: for an engine, the poller of the runtime and the host's
// identity; for a backend, peers not counted, 3 without devices, and some 5 for each RDMA device.
const (
	descriptorsOfEngine = 4
	descriptorsOfRDMA   = 64
	descriptorsOfOthers = 32
)

// checkLimits reports whether the process may start what a backend needs: the Go runtime ends the
// process without threads, and a device that got no descriptor would be missing for the life of the
// engine.
func checkLimits(kind BackendType) error {
	need := descriptorsOfOthers
	if kind == BackendRDMA {
		need = descriptorsOfRDMA
	}
	if err := limits.Threads(); err != nil {
		return err
	}
	return limits.Descriptors(need)
}

// addBackend needs e.mu held.
func (e *Engine) addBackend(kind BackendType, cfg *BackendConfig, f core.Family) error {
	before := snapshot{control: e.control, transports: len(e.transports), rdma: e.rdma.Load()}
	b, err := e.openBackend(kind, cfg, f)
	if err != nil {
		before.restore(e)
		return fmt.Errorf("create backend %v: %w", kind, err)
	}
	e.backends[kind] = b
	e.startTick()
	process.join(e)
	for _, r := range b.routes() {
		e.self.Log.Info("backend created", "backend", kind, "memory", r.memory(), "transports", r.names(), "notes", r.notes)
	}
	return nil
}

// A snapshot is what an engine had before an attempt to create a backend.
type snapshot struct {
	control    *control.Server
	transports int
	rdma       *BackendConfig
}

// restore takes from e what it has more. Closing that waits for goroutines which may need e.mu: it
// is left to discarded. restore needs e.mu held.
func (s snapshot) restore(e *Engine) {
	regions := e.store.allRegions()
	for _, tr := range e.transports[s.transports:] {
		e.discarded = append(e.discarded, func() (err error) {
			for _, r := range regions {
				err = errors.Join(err, r.detach(tr))
			}
			return errors.Join(err, tr.close())
		})
	}
	e.transports = e.transports[:s.transports:s.transports]
	e.rdma.Store(s.rdma)
	if c := e.control; s.control == nil && c != nil {
		e.control = nil
		e.discarded = append(e.discarded, func() error {
			c.Close()
			return nil
		})
	}
}

// autoXGMI creates an XGMI backend beside an RDMA backend where the environment asks for that, and
// in its place where only NICs would do and there is none: then done is true, and the engine has
// the port of one that other hosts cannot reach. It needs e.mu held.
func (e *Engine) autoXGMI(cfg *BackendConfig, f core.Family) (done bool, err error) {
	wanted := strings.HasPrefix(config.Get(config.DisableAutoXGMI), "0")
	strict := len(f.Missing) > 0 && config.Flag(config.RequireRDMA, false)
	if strict && !wanted {
		return false, fmt.Errorf("create backend %v: %s is set and %s; %s=0 lets GPUs of one host do without: %w", BackendRDMA, config.RequireRDMA, f.Missing[0],
			config.DisableAutoXGMI, ErrUnsupported)
	}
	if !wanted {
		return false, nil
	}
	if e.backends[BackendXGMI] == nil {
		var gpus core.Family
		if gpus, err = core.Transports(BackendXGMI.String()); err == nil {
			err = e.addBackend(BackendXGMI, cfg.forXGMI(), gpus)
		}
	}
	switch {
	case strict && err != nil:
		return false, fmt.Errorf("create backend %v: %s is set and %s: %w", BackendRDMA, config.RequireRDMA, f.Missing[0], err)
	case strict:
		e.config.Port = control.PortNone
		return true, nil
	case err != nil:
		e.self.Log.Info("no XGMI backend beside RDMA", "reason", err)
	}
	return false, nil
}

// openBackend needs e.mu held.
func (e *Engine) openBackend(kind BackendType, cfg *BackendConfig, f core.Family) (*backend, error) {
	if kind == BackendXGMI {
		cfg = cfg.forXGMI()
		if _, err := device.Devices(); err != nil {
			return nil, fmt.Errorf("it moves GPU memory: %w", err)
		}
	} else if e.config.Port == control.PortNone {
		return nil, fmt.Errorf("port %d means an engine that peers cannot reach: %w", control.PortNone, ErrInvalid)
	}
	b := &backend{kind: kind, config: cfg, notes: f.Missing}
	err := e.startControl(kind == BackendXGMI)
	if err != nil {
		return nil, err
	}
	if kind == BackendRDMA {
		e.rdma.Store(cfg)
	}
	if b.host, err = e.openRoute(b, false, f.Host); err != nil {
		return nil, err
	}
	if slices.Equal(f.Host, f.GPU) {
		b.gpu = b.host
	} else if b.gpu, err = e.openRoute(b, true, f.GPU); err != nil {
		return nil, err
	}
	if kind == BackendRDMA && config.Flag(config.RequireRDMA, false) && !core.HasRDMA(b.host.names()) {
		return nil, fmt.Errorf("%s is set, and no RDMA device is used: %s: %w", config.RequireRDMA, strings.Join(b.host.notes, "; "), ErrUnsupported)
	}
	return b, nil
}

// startControl binds the control plane, once: of an engine that only peers of this host need to
// reach, without a network. It needs e.mu held.
func (e *Engine) startControl(local bool) error {
	if e.control == nil {
		e.control = control.NewServer(&e.self, controlHost{e})
	}
	if local {
		return e.control.ListenLocal()
	}
	return e.control.ListenTCP(e.config.Host, e.config.Port)
}

// transport opens the named transport, once, and gives it all registered memory. It needs e.mu
// held.
func (e *Engine) transport(name string) (*transport, error) {
	for _, tr := range e.transports {
		if tr.name == name {
			return tr, nil
		}
	}
	if e.registry == nil {
		sample, err := config.Int(config.IOSample, 0, 0, math.MaxInt32)
		if err != nil {
			e.self.Log.Warn("environment variable ignored", "error", err)
		}
		r, err := core.Registry(core.Options{Filter: config.Get(config.FabricProvider), TLS: e.self.TLS, Sums: config.Flag(config.IOChecksum, false), Sample: uint64(sample),
			Compress: config.Flag(config.IOCompress, false), Packed: &e.packed, NICs: e.nicUse, Log: e.self.Log})
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

// RemoveBackend drops a backend and closes its paths; their transfers fail. Unknown ones are
// ignored.
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
		for _, r := range b.routes() {
			p.closePath(r, fmt.Errorf("backend %v was removed: %w", kind, ErrBadState))
		}
	}
	return nil
}

// has tells whether there is a backend of this kind.
func (e *Engine) has(kind BackendType) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.backends[kind] != nil
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
