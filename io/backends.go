// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mori/core"
	"mori/core/config"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/limits"
	"mori/io/internal/control"
	"mori/io/internal/identity"
	"mori/io/internal/transport"
)

// A backendTable has the backends of an engine and what they share: transports and the control
// server. A backend is created whole or not at all.
type backendTable struct {
	engine *Engine
	rdma   atomic.Pointer[BackendConfig] // of the RDMA backend that was created last

	mu         sync.Mutex
	registry   *fabric.Registry
	control    *control.Server // nil: no backend has needed it
	byKind     map[BackendType]*backend
	transports []*transport.Transport // in order of preference
	discarded  []func() error         // close what failed backends had opened; called without mu
}

// create opens a backend. It fails if the engine is closed.
func (t *backendTable) create(kind BackendType, cfg *BackendConfig) (err error) {
	t.mu.Lock()
	defer func() { err = errors.Join(err, t.discard()) }()
	if t.engine.closed() {
		return fmt.Errorf("create backend %v: %w", kind, ErrClosed)
	}
	if t.byKind[kind] != nil {
		t.engine.self.Log.Warn("backend exists already", "backend", kind)
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
		if done, err := t.autoXGMI(cfg, f); done || err != nil {
			return err
		}
	}
	return t.addBackend(kind, cfg, f)
}

// discard releases mu and closes what failed backends had opened. It needs mu held.
func (t *backendTable) discard() (err error) {
	discarded := t.discarded
	t.discarded = nil
	t.mu.Unlock()
	for _, discard := range discarded {
		err = errors.Join(err, discard())
	}
	return err
}

// remove takes a backend out of the table and returns it, nil if there is none.
func (t *backendTable) remove(kind BackendType) *backend {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.byKind[kind]
	delete(t.byKind, kind)
	return b
}

// opened returns what close has to close. It is called once the engine is closed, so that no
// backend is created after it.
func (t *backendTable) opened() (*control.Server, []*transport.Transport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.control, t.transports
}

// desc describes the engine for peers.
func (t *backendTable) desc() EngineDesc {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.descLocked()
}

// descLocked needs mu held.
func (t *backendTable) descLocked() EngineDesc {
	e := t.engine
	d := EngineDesc{Key: e.self.Key, NodeID: e.self.NodeID, Hostname: e.hostname, Host: e.config.Host,
		Port: e.config.Port, PID: os.Getpid(), Incarnation: e.self.Incarnation, PublicKey: e.self.Signer.Public}
	if t.control != nil && t.control.Port() != 0 {
		d.Port = t.control.Port()
	}
	return d
}

// describe lists the backends in the order in which pairs take them.
func (t *backendTable) describe() []BackendInfo {
	out := []BackendInfo{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, kind := range preference {
		if b := t.byKind[kind]; b != nil {
			out = append(out, BackendInfo{Type: kind.String(), Transports: b.host.names(),
				GPUTransports: b.gpu.names(), Notes: notNil(b.gpu.notes)})
		}
	}
	return out
}

// preference is the order in which a pair of regions takes the first backend that can serve it.
var preference = []BackendType{BackendXGMI, BackendFabric, BackendRDMA, BackendTCP}

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

// addBackend needs t.mu held.
func (t *backendTable) addBackend(kind BackendType, cfg *BackendConfig, f core.Family) error {
	before := snapshot{control: t.control, transports: len(t.transports), rdma: t.rdma.Load()}
	b, err := t.openBackend(kind, cfg, f)
	if err != nil {
		before.restore(t)
		return fmt.Errorf("create backend %v: %w", kind, err)
	}
	t.byKind[kind] = b
	t.engine.clock.start(t.engine.tick)
	process.join(t.engine)
	for _, r := range b.routes() {
		t.engine.self.Log.Info("backend created", "backend", kind, "memory", r.memory(),
			"transports", r.names(), "notes", r.notes)
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
// is left to discarded. restore needs t.mu held.
func (s snapshot) restore(t *backendTable) {
	regions := t.engine.regions.All()
	for _, tr := range t.transports[s.transports:] {
		t.discarded = append(t.discarded, func() (err error) {
			for _, r := range regions {
				err = errors.Join(err, r.Detach(tr))
			}
			return errors.Join(err, tr.Close())
		})
	}
	t.transports = t.transports[:s.transports:s.transports]
	t.rdma.Store(s.rdma)
	if c := t.control; s.control == nil && c != nil {
		t.control = nil
		t.discarded = append(t.discarded, func() error {
			c.Close()
			return nil
		})
	}
}

// autoXGMI creates an XGMI backend beside an RDMA backend where the environment asks for that, and
// in its place where only NICs would do and there is none: then done is true, and the engine has
// the port of one that other hosts cannot reach. It needs t.mu held.
func (t *backendTable) autoXGMI(cfg *BackendConfig, f core.Family) (done bool, err error) {
	wanted := strings.HasPrefix(config.Get(config.DisableAutoXGMI), "0")
	strict := len(f.Missing) > 0 && config.Flag(config.RequireRDMA, false)
	if strict && !wanted {
		return false, fmt.Errorf("create backend %v: %s is set and %s; with %s=0, GPUs of one host need no RDMA: %w", BackendRDMA, config.RequireRDMA, f.Missing[0],
			config.DisableAutoXGMI, ErrUnsupported)
	}
	if !wanted {
		return false, nil
	}
	if t.byKind[BackendXGMI] == nil {
		var gpus core.Family
		if gpus, err = core.Transports(BackendXGMI.String()); err == nil {
			err = t.addBackend(BackendXGMI, cfg.forXGMI(), gpus)
		}
	}
	switch {
	case strict && err != nil:
		return false, fmt.Errorf("create backend %v: %s is set and %s: %w", BackendRDMA,
			config.RequireRDMA, f.Missing[0], err)
	case strict:
		t.engine.config.Port = control.PortNone
		return true, nil
	case err != nil:
		t.engine.self.Log.Info("no XGMI backend beside RDMA", "reason", err)
	}
	return false, nil
}

// openBackend needs t.mu held.
func (t *backendTable) openBackend(kind BackendType, cfg *BackendConfig, f core.Family) (*backend, error) {
	if kind == BackendXGMI {
		cfg = cfg.forXGMI()
		if _, err := device.Devices(); err != nil {
			return nil, fmt.Errorf("XGMI moves only GPU memory: %w", err)
		}
	} else if t.engine.config.Port == control.PortNone {
		return nil, fmt.Errorf("port %d is reserved for engines that only XGMI reaches: %w",
			control.PortNone, ErrInvalid)
	}
	b := &backend{kind: kind, config: cfg, notes: f.Missing}
	err := t.startControl(kind == BackendXGMI)
	if err != nil {
		return nil, err
	}
	if kind == BackendRDMA {
		t.rdma.Store(cfg)
	}
	if b.host, err = t.openRoute(b, false, f.Host); err != nil {
		return nil, err
	}
	if slices.Equal(f.Host, f.GPU) {
		b.gpu = b.host
	} else if b.gpu, err = t.openRoute(b, true, f.GPU); err != nil {
		return nil, err
	}
	if kind == BackendRDMA && config.Flag(config.RequireRDMA, false) && !core.HasRDMA(b.host.names()) {
		return nil, fmt.Errorf("%s is set, and no RDMA device is used: %s: %w", config.RequireRDMA,
			strings.Join(b.host.notes, "; "), ErrUnsupported)
	}
	return b, nil
}

// startControl binds the control plane, once: of an engine that only peers of this host need to
// reach, without a network. It needs t.mu held.
func (t *backendTable) startControl(local bool) error {
	if t.control == nil {
		t.control = control.NewServer(&t.engine.self, controlHost{t.engine})
	}
	if local {
		return t.control.ListenLocal()
	}
	return t.control.ListenTCP(t.engine.config.Host, t.engine.config.Port)
}

// transport opens the named transport, once, and gives it all registered memory. It needs e.mu
// held.
func (t *backendTable) transport(name string) (*transport.Transport, error) {
	for _, tr := range t.transports {
		if tr.Name() == name {
			return tr, nil
		}
	}
	if t.registry == nil {
		sample, err := config.Int(config.IOSample, 0, 0, math.MaxInt32)
		if err != nil {
			t.engine.self.Log.Warn("environment variable ignored", "error", err)
		}
		r, err := core.Registry(core.Options{Filter: config.Get(config.FabricProvider),
			TLS: t.engine.self.TLS, Sums: config.Flag(config.IOChecksum, false), Sample: uint64(sample),
			Compress: config.Flag(config.IOCompress, false), Packed: &t.engine.meters.packed,
			NICs: t.nicUse, Log: t.engine.self.Log})
		if err != nil {
			return nil, err
		}
		t.registry = r
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	tr, err := transport.Open(ctx, name, transport.Config{Registry: t.registry, Host: t.engine.config.Host,
		Server: t.control, Arrivals: t.engine.arrived, Log: t.engine.self.Log})
	if err != nil {
		return nil, err
	}
	for _, r := range t.engine.regions.All() {
		if err := r.Attach(tr); err != nil {
			return nil, errors.Join(err, tr.Close())
		}
	}
	t.transports = append(t.transports, tr)
	return tr, nil
}

// openTransports lists what is open.
func (t *backendTable) openTransports() []*transport.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*transport.Transport(nil), t.transports...)
}

// movesGPUMemory reports whether any open transport takes it.
func (t *backendTable) movesGPUMemory() bool {
	return slices.ContainsFunc(t.openTransports(), (*transport.Transport).TakesGPUMemory)
}

// disconnect closes the connections of all for whom gone is true, and makes their tokens worthless.
// When it returns, no byte of them can land any more.
func (t *backendTable) disconnect(gone func(identity.ID) bool) {
	if c := t.controlServer(); c != nil {
		c.Revoke(gone)
	}
	transport.Disconnect(t.openTransports(), gone)
}

// controlServer returns the engine's control server, nil if there is none.
func (t *backendTable) controlServer() *control.Server {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.control
}

// has reports whether there is a backend of this kind.
func (t *backendTable) has(kind BackendType) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byKind[kind] != nil
}

// wantsNotifications reports whether any backend has notifications on.
func (t *backendTable) wantsNotifications() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.byKind {
		if b.config.EnableNotification {
			return true
		}
	}
	return false
}
