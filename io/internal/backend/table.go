// SPDX-License-Identifier: MIT

package backend

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"mori/core"
	"mori/core/config"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/limits"
	"mori/io/internal/arrivals"
	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/identity"
	"mori/io/internal/region"
	"mori/io/internal/transport"
)

// TableConfig holds what backends need from their engine.
type TableConfig struct {
	Self     *control.Self
	Answers  control.Host // of the control server
	Host     string       // address or name to bind and to advertise
	Port     int          // of the control server; 0: any
	Hostname string
	Registry *fabric.Registry // nil: the providers of this build
	Regions  *region.Table
	Arrivals *arrivals.Table
	Packed   *atomic.Uint64 // counts payloads that were sent compressed
	Created  func()         // runs after each backend is created, before the table can close
}

// A Table has the backends of an engine and their shared state: transports and the control server.
// A backend is created completely or not at all. Safe for concurrent use.
type Table struct {
	config TableConfig
	rdma   atomic.Pointer[Config] // config of the RDMA backend that was created last

	mu         sync.Mutex
	closed     bool
	port       int
	control    *control.Server // nil until a backend needs it
	byKind     map[Kind]*Backend
	transports transports
	discarded  []func() error // close what failed backends had opened; called without mu
}

// NewTable returns a table without backends.
func NewTable(c TableConfig) *Table {
	t := &Table{config: c, port: c.Port, byKind: map[Kind]*Backend{}}
	t.transports = transports{config: &t.config, nics: t.nicUse, registry: c.Registry}
	return t
}

// Create opens a backend. It does nothing if the backend exists, and fails if the table is closed.
func (t *Table) Create(kind Kind, cfg *Config) (err error) {
	t.mu.Lock()
	defer func() { err = errors.Join(err, t.discard()) }()
	if t.closed {
		return fmt.Errorf("create backend %v: %w", kind, errs.ErrClosed)
	}
	if t.byKind[kind] != nil {
		t.config.Self.Log.Warn("backend exists already", "backend", kind)
		return nil
	}
	if err := checkLimits(kind); err != nil {
		return fmt.Errorf("create backend %v: %w", kind, err)
	}
	f, err := core.Transports(kind.String())
	if err != nil {
		return fmt.Errorf("create backend %v: %w", kind, err)
	}
	if kind == RDMA {
		if done, err := t.autoXGMI(cfg, f); done || err != nil {
			return err
		}
	}
	return t.add(kind, cfg, f)
}

// discard releases mu and closes what failed backends had opened. It needs mu held.
func (t *Table) discard() (err error) {
	discarded := t.discarded
	t.discarded = nil
	t.mu.Unlock()
	for _, discard := range discarded {
		err = errors.Join(err, discard())
	}
	return err
}

// Remove removes a backend from the table and returns it, nil if it does not exist.
func (t *Table) Remove(kind Kind) *Backend {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.byKind[kind]
	delete(t.byKind, kind)
	if b != nil {
		b.removed.Store(true)
	}
	return b
}

// Close rejects further backends and closes the control server. It returns the transports, which
// the caller closes after their paths.
func (t *Table) Close() []*transport.Transport {
	t.mu.Lock()
	t.closed = true
	server, open := t.control, t.transports.open
	t.mu.Unlock()
	if server != nil {
		server.Close()
	}
	return open
}

// Desc describes the engine for peers. listens reports whether a backend that listens was created;
// only then is the port valid.
func (t *Table) Desc() (d descriptor.Engine, listens bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	self := t.config.Self
	d = descriptor.Engine{Key: self.Key, NodeID: self.NodeID, Hostname: t.config.Hostname,
		Host: t.config.Host, Port: t.port, PID: os.Getpid(), Incarnation: self.Incarnation,
		PublicKey: self.Signer.Public}
	if t.control != nil && t.control.Port() != 0 {
		d.Port = t.control.Port()
	}
	return d, t.control != nil
}

// Info describes a backend's transports, and why better ones are missing.
type Info struct {
	Type          string   `json:"type"`
	Transports    []string `json:"transports"`     // for pairs of host memory, in order of preference
	GPUTransports []string `json:"gpu_transports"` // for pairs with GPU memory at one end or both
	Notes         []string `json:"notes"`
}

// Describe lists the backends in the order in which pairs take them.
func (t *Table) Describe() []Info {
	out := []Info{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, kind := range preference {
		if b := t.byKind[kind]; b != nil {
			out = append(out, Info{Type: kind.String(), Transports: b.host.names(),
				GPUTransports: b.gpu.names(), Notes: append([]string{}, b.gpu.Notes...)})
		}
	}
	return out
}

// preference is the order in which backends are tried for a pair of regions.
var preference = []Kind{XGMI, Fabric, RDMA, TCP}

// The number of file descriptors to reserve for a backend, without its peers. A backend opens 3,
// and about 5 more per RDMA device.
const (
	descriptorsOfRDMA   = 64
	descriptorsOfOthers = 32
)

// checkLimits returns an error if the process lacks the threads or file descriptors for a backend.
// Without threads, the Go runtime ends the process. A device that gets no descriptor would be
// missing for the lifetime of the engine.
func checkLimits(kind Kind) error {
	need := descriptorsOfOthers
	if kind == RDMA {
		need = descriptorsOfRDMA
	}
	if err := limits.Threads(); err != nil {
		return err
	}
	return limits.Descriptors(need)
}

// add needs t.mu held.
func (t *Table) add(kind Kind, cfg *Config, f core.Family) error {
	before := snapshot{control: t.control, transports: len(t.transports.open), rdma: t.rdma.Load()}
	b, err := t.open(kind, cfg, f)
	if err != nil {
		before.restore(t)
		return fmt.Errorf("create backend %v: %w", kind, err)
	}
	t.byKind[kind] = b
	t.config.Created()
	for _, r := range b.Routes() {
		t.config.Self.Log.Info("backend created", "backend", kind, "memory", r.Memory(), "transports",
			r.names(), "notes", r.Notes)
	}
	return nil
}

// A snapshot is the state of a table before an attempt to create a backend.
type snapshot struct {
	control    *control.Server
	transports int
	rdma       *Config
}

// restore removes from t what was added since the snapshot. It leaves the closing to discarded,
// because that waits for goroutines which may need t.mu. restore needs t.mu held.
func (s snapshot) restore(t *Table) {
	t.discarded = append(t.discarded, t.transports.cut(s.transports))
	t.rdma.Store(s.rdma)
	if c := t.control; s.control == nil && c != nil {
		t.control = nil
		t.discarded = append(t.discarded, func() error {
			c.Close()
			return nil
		})
	}
}

// autoXGMI creates an XGMI backend beside an RDMA backend if the environment asks for it. If the
// environment requires a NIC and none exists, the XGMI backend replaces the RDMA backend. Then done
// is true, and the engine gets the port of an engine that other hosts cannot reach. It needs t.mu
// held.
func (t *Table) autoXGMI(cfg *Config, f core.Family) (done bool, err error) {
	wanted := strings.HasPrefix(config.Get(config.DisableAutoXGMI), "0")
	strict := len(f.Missing) > 0 && config.Flag(config.RequireRDMA, false)
	if strict && !wanted {
		return false, fmt.Errorf("create backend %v: %s is set and %s; with %s=0, GPUs of one host need no RDMA: %w", RDMA, config.RequireRDMA, f.Missing[0],
			config.DisableAutoXGMI, errs.ErrUnsupported)
	}
	if !wanted {
		return false, nil
	}
	if t.byKind[XGMI] == nil {
		var gpus core.Family
		if gpus, err = core.Transports(XGMI.String()); err == nil {
			err = t.add(XGMI, cfg.forXGMI(), gpus)
		}
	}
	switch {
	case strict && err != nil:
		return false, fmt.Errorf("create backend %v: %s is set and %s: %w", RDMA,
			config.RequireRDMA, f.Missing[0], err)
	case strict:
		t.port = control.PortNone
		return true, nil
	case err != nil:
		t.config.Self.Log.Info("no XGMI backend beside RDMA", "reason", err)
	}
	return false, nil
}

// open needs t.mu held.
func (t *Table) open(kind Kind, cfg *Config, f core.Family) (*Backend, error) {
	if kind == XGMI {
		cfg = cfg.forXGMI()
		if _, err := device.Devices(); err != nil {
			return nil, fmt.Errorf("XGMI moves only GPU memory: %w", err)
		}
	} else if t.port == control.PortNone {
		return nil, fmt.Errorf("port %d is reserved for engines that only XGMI reaches: %w",
			control.PortNone, errs.ErrInvalid)
	}
	b := &Backend{Kind: kind, Config: cfg, notes: f.Missing}
	err := t.startControl(kind == XGMI)
	if err != nil {
		return nil, err
	}
	if kind == RDMA {
		t.rdma.Store(cfg)
	}
	if b.host, err = t.transports.route(b, false, f.Host, t.control); err != nil {
		return nil, err
	}
	if slices.Equal(f.Host, f.GPU) {
		b.gpu = b.host
	} else if b.gpu, err = t.transports.route(b, true, f.GPU, t.control); err != nil {
		return nil, err
	}
	if kind == RDMA && config.Flag(config.RequireRDMA, false) && !core.HasRDMA(b.host.names()) {
		return nil, fmt.Errorf("%s is set, and no RDMA device is used: %s: %w", config.RequireRDMA,
			strings.Join(b.host.Notes, "; "), errs.ErrUnsupported)
	}
	return b, nil
}

// startControl binds the control plane, once. With local it uses no network, for an engine that
// only peers on this host need to reach. It needs t.mu held.
func (t *Table) startControl(local bool) error {
	if t.control == nil {
		t.control = control.NewServer(t.config.Self, t.config.Answers)
	}
	if local {
		return t.control.ListenLocal()
	}
	return t.control.ListenTCP(t.config.Host, t.port)
}

// Transports returns the open transports.
func (t *Table) Transports() []*transport.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.transports.open)
}

// MovesGPUMemory reports whether any open transport moves GPU memory.
func (t *Table) MovesGPUMemory() bool {
	return slices.ContainsFunc(t.Transports(), (*transport.Transport).TakesGPUMemory)
}

// Disconnect closes the connections of every ID for which gone is true, and invalidates their
// tokens. When it returns, none of them can write to this process any more.
func (t *Table) Disconnect(gone func(identity.ID) bool) {
	if c := t.Control(); c != nil {
		c.Revoke(gone)
	}
	transport.Disconnect(t.Transports(), gone)
}

// Control returns the control server, nil if no backend has needed it.
func (t *Table) Control() *control.Server {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.control
}

// Has reports whether a backend of this kind exists.
func (t *Table) Has(kind Kind) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byKind[kind] != nil
}

// Notifies reports whether any backend has notifications on.
func (t *Table) Notifies() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.byKind {
		if b.Config.EnableNotification {
			return true
		}
	}
	return false
}

// nicUse returns how the engine's RDMA backend uses RDMA devices. Devices are chosen for the memory
// registered so far. If no memory is registered, they are chosen for this thread's current GPU.
// Transports call it when they open.
func (t *Table) nicUse() core.NICUse {
	use := core.AnyNIC()
	if c := t.rdma.Load(); c != nil {
		use = c.nicUse()
	}
	gpu, node, ok := t.config.Regions.Place()
	if !ok {
		if d, err := device.Current(); err == nil && d != nil {
			gpu = d.BusID
		}
	}
	use.GPU, use.NUMA = gpu, node
	return use
}
