// SPDX-License-Identifier: MIT

package interchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mori/core"
	"mori/core/fabric"
	"mori/core/gpunic"
)

// Options configure a side.
type Options struct {
	Device string        // "emu0", "emu0:bnxt", "proxy", "proxy:tcp", "mlx5_0"
	GPU    string        // "cpu", "cuda:0", "hip:0"
	Limit  time.Duration // time limit of every wait; default 30 s
	Log    int           // 1<<Log slots of a ring; default 6

	// Receives gives a NIC's queue a receive ring of 1<<Receives entries for Side.Receive; 0 is
	// none.
	Receives int

	// Module and Functions name kernels of the caller, which Side.Launch runs instead of Side.Run:
	// a file of device.KernelDir. On the CPU the caller runs them itself.
	Module    string
	Functions []string

	bare bool // with a proxy: no queue, so that the host itself can post
}

const (
	defaultLimit = 30 * time.Second
	defaultLog   = 6
)

// A Found is a device of this host.
type Found struct {
	Name  string   `json:"name"`
	Ports []string `json:"ports"` // in words
}

// An End is a side of a connection, for its peer.
type End struct {
	Number  uint32 `json:"qpn"`
	Address []byte `json:"address"`
}

// A Memory is a registered buffer.
type Memory struct {
	Addr  uint64 `json:"addr"`
	Bytes uint64 `json:"bytes"`
	Keys  string `json:"keys"`  // in words
	Shown []byte `json:"shown"` // for the peer
}

// Work describes a run of the kernels.
type Work struct {
	Send   bool
	Value  uint8 // value of the bytes in the last round
	Rounds uint64
}

// An Outcome is a kernel's report.
type Outcome struct {
	Rounds      uint64 `json:"rounds"`
	Nanoseconds uint64 `json:"ns"`
	Kernel      string `json:"kernel"` // "" for a side without a kernel
}

// A link is how a side's kernels reach the other side's memory. The steps are called in the order
// of the methods.
type link interface {
	discover(ctx context.Context) ([]Found, error)
	open(ctx context.Context) (string, error)
	endpoint(ctx context.Context) (End, error)
	connect(address []byte) error
	register(b block) (keys string, shown []byte, err error)
	setPeer(shown []byte) error
	run(ctx context.Context, w Work) (Outcome, error)
	verify(ctx context.Context, value uint8) (wrong uint64, err error)
	view() View
	close() error
}

// A Side is one of the two sides.
type Side struct {
	opts      Options
	processor processor
	link      link
	data      block
	step      int
	ended     bool
}

// The steps, each of which needs the one before.
const (
	opened = iota
	discovered
	deviceOpen
	endpointMade
	connected
	registered
	peerSet
	ran
)

// Open creates a side, and finds its GPU.
func Open(o Options) (*Side, error) {
	o.Limit, o.Log = cmp.Or(o.Limit, defaultLimit), cmp.Or(o.Log, defaultLog)
	if o.Limit < 0 || o.Log < 2 || o.Log > 15 || o.Receives < 0 || o.Receives > 15 {
		return nil, fmt.Errorf("interchange with a limit of %v and rings of 1<<%d slots, 1<<%d to receive: %w", o.Limit, o.Log, o.Receives, fabric.ErrInvalid)
	}
	p, err := findProcessor(o.GPU)
	if err != nil {
		return nil, err
	}
	s := &Side{opts: o, processor: p}
	if s.link, err = newLink(&o, p); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return s, nil
}

// newLink creates the link of o.Device.
func newLink(o *Options, p processor) (link, error) {
	kind, provider, _ := strings.Cut(o.Device, ":")
	switch kind {
	case "":
		return nil, fmt.Errorf("no device: want emu0, emu0:FAMILY, proxy, proxy:PROVIDER or an RDMA device's name: %w", fabric.ErrInvalid)
	case "proxy":
		return &proxyLink{opts: *o, processor: p, provider: cmp.Or(provider, nearest())}, nil
	}
	module, err := gpunic.KernelModule(o.Device)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, fabric.ErrInvalid)
	}
	return &nicLink{opts: *o, processor: p, name: o.Device, module: module}, nil
}

// nearest is the preferred provider between processes of this host.
func nearest() string {
	for _, r := range core.Registrations() {
		if r.Scope == fabric.ScopeHost && r.HostMemory {
			return r.Name
		}
	}
	return ""
}

// GPU describes where the kernels run.
func (s *Side) GPU() string { return s.processor.name() }

// next checks that the step before has been done.
func (s *Side) next(step int) (context.Context, context.CancelFunc, error) {
	if s.ended || s.step < step-1 {
		return nil, nil, fmt.Errorf("step %d after step %d: %w", step, s.step, ErrOrder)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Limit)
	return ctx, cancel, nil
}

func (s *Side) done(step int, err error) error {
	if err == nil {
		s.step = max(s.step, step)
	}
	return err
}

// Discover lists devices with their ports.
func (s *Side) Discover() ([]Found, error) {
	ctx, cancel, err := s.next(discovered)
	if err != nil {
		return nil, err
	}
	defer cancel()
	found, err := s.link.discover(ctx)
	return found, s.done(discovered, err)
}

// OpenDevice opens the device, and returns its description.
func (s *Side) OpenDevice() (string, error) {
	ctx, cancel, err := s.next(deviceOpen)
	if err != nil {
		return "", err
	}
	defer cancel()
	text, err := s.link.open(ctx)
	return text, s.done(deviceOpen, err)
}

// Endpoint creates the endpoint. Once.
func (s *Side) Endpoint() (End, error) {
	ctx, cancel, err := s.next(endpointMade)
	if err != nil {
		return End{}, err
	}
	defer cancel()
	e, err := s.link.endpoint(ctx)
	return e, s.done(endpointMade, err)
}

// Connect connects to the End of the other side.
func (s *Side) Connect(address []byte) error {
	_, cancel, err := s.next(connected)
	if err != nil {
		return err
	}
	defer cancel()
	return s.done(connected, s.link.connect(address))
}

// Register allocates a buffer on the GPU and gives the other side write access. Once.
func (s *Side) Register(bytes uint64) (Memory, error) {
	_, cancel, err := s.next(registered)
	if err != nil {
		return Memory{}, err
	}
	defer cancel()
	if bytes == 0 || s.data.n != 0 {
		return Memory{}, fmt.Errorf("register a buffer of %d bytes after one of %d: %w", bytes, s.data.n, fabric.ErrInvalid)
	}
	if s.data, err = s.processor.data(bytes); err != nil {
		return Memory{}, err
	}
	keys, shown, err := s.link.register(s.data)
	return Memory{Addr: s.data.addr, Bytes: bytes, Keys: keys, Shown: shown}, s.done(registered, err)
}

// SetPeer makes the other side's Memory known here.
func (s *Side) SetPeer(shown []byte) error {
	_, cancel, err := s.next(peerSet)
	if err != nil {
		return err
	}
	defer cancel()
	return s.done(peerSet, s.link.setPeer(shown))
}

// Run runs the side's kernel to completion, or until ctx ends.
func (s *Side) Run(ctx context.Context, w Work) (Outcome, error) {
	_, cancel, err := s.next(ran)
	if err != nil {
		return Outcome{}, err
	}
	cancel()
	if w.Rounds == 0 {
		return Outcome{}, fmt.Errorf("no rounds: %w", fabric.ErrInvalid)
	}
	out, err := s.link.run(ctx, w)
	return out, s.done(ran, err)
}

// Verify makes the GPU count the bytes of its buffer that differ from the value, in all rounds that
// its kernel checked.
func (s *Side) Verify(ctx context.Context, value uint8) (wrong uint64, err error) {
	if s.ended || s.step < ran {
		return 0, fmt.Errorf("verify after step %d: %w", s.step, ErrOrder)
	}
	return s.link.verify(ctx, value)
}

// Close frees everything. No kernel may run.
func (s *Side) Close() error {
	if s.ended {
		return nil
	}
	s.ended = true
	return errors.Join(s.link.close(), s.data.close(), s.processor.close())
}
