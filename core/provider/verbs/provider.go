// SPDX-License-Identifier: MIT

package verbs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/inet"
	"mori/core/provider/internal/pathbase"
	"mori/core/provider/verbs/nics"
	"mori/native/verbs"
)

// Options configure a Provider. The zero value is valid.
type Options struct {
	// Settings is called whenever devices are listed or opened. nil: the zero Settings with the best
	// GID. The listing or opening call returns its error.
	Settings func() (Settings, error)

	TLS *tls.Config  // of the TCP connection; NICs do not encrypt
	Log *slog.Logger // nil: slog.Default()

	// For tests. releaseWait is how long to wait for a peer or a device, 0 for pathbase.ReleaseWait.
	// setupWait is how long the setup of rails may take, 0 for usualSetupWait.
	releaseWait, setupWait time.Duration
}

// bestOp is the length at which large transfers are split. It is chosen, not measured: at 50 GB/s
// it takes 80 us, which is long compared to a completion.
const bestOp = 4 << 20

// A Provider is the fabric.Provider "verbs".
type Provider struct {
	conn.Offer
	opts Options
}

// Registration describes this provider to package core.
var Registration = fabric.Registration{
	Name: "verbs", Scope: fabric.ScopeNetwork, Medium: fabric.MediumNIC, HostMemory: true, GPUMemory: true, Preference: 20,
	Diagnose: diagnose,
}

// diagnose reports whether a NIC of this host is usable.
func diagnose(fabric.Peers) fabric.Diagnosis {
	if why := nics.Missing(); why != "" {
		return fabric.Diagnosis{Reasons: []string{why}}
	}
	return fabric.Diagnosis{Path: "verbs/rdma"}
}

var _ fabric.Provider = (*Provider)(nil)

// New makes a provider. It opens no devices.
func New(opts Options) *Provider {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Settings == nil {
		opts.Settings = func() (Settings, error) { return Settings{GIDIndex: -1}, nil }
	}
	if opts.releaseWait == 0 {
		opts.releaseWait = pathbase.ReleaseWait
	}
	if opts.setupWait == 0 {
		opts.setupWait = usualSetupWait
	}
	return &Provider{conn.NewOffer("verbs", "rdma", fabric.CapRemoteComm, fabric.Limits{BestOp: bestOp}), opts}
}

// GetInfo returns an Info for each endpoint type that satisfies hints, EPMsg first, if libibverbs
// is available and a device is active. It does no name lookup.
func (p *Provider) GetInfo(_ context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error) {
	msg := p.Info
	if node != "" || service != "" {
		msg.Dest = fabric.Addr(net.JoinHostPort(node, service))
	}
	if err := conn.OfferDevice(&msg, hints); err != nil {
		return nil, err
	}
	answers, err := conn.Answers(hints, msg)
	if err != nil {
		return nil, err
	}
	if err := p.probe(); err != nil { // not earlier: it loads the library
		return nil, err
	}
	return answers, nil
}

// probe returns why no device is usable.
func (p *Provider) probe() error {
	_, nics, err := p.open()
	if errors.Is(err, fabric.ErrNoData) {
		return fmt.Errorf("verbs: %w", err)
	}
	if err != nil {
		return fmt.Errorf("verbs: %w: %w", err, fabric.ErrNoData)
	}
	return closeNICs(nics)
}

// open opens the devices in the current settings.
func (p *Provider) open() (Settings, []*nic, error) {
	if err := verbs.Load(); err != nil {
		return Settings{}, nil, err
	}
	s, err := p.settings()
	if err != nil {
		return s, nil, err
	}
	nics, notes, err := openNICs(&s, p.opts.Log)
	for _, why := range notes {
		p.opts.Log.Debug("verbs: a device is not used", "why", why)
	}
	return s, nics, err
}

func (p *Provider) settings() (Settings, error) {
	s, err := p.opts.Settings()
	if err != nil {
		return s, err
	}
	return s.filled()
}

// Open opens the devices; see fabric.Provider.
func (p *Provider) Open(_ context.Context, in *fabric.Info) (fabric.Fabric, error) {
	if in != nil && in.Provider != "" && in.Provider != p.Name() {
		return nil, fmt.Errorf("open %s as verbs: %w", in.Provider, fabric.ErrNoData)
	}
	s, nics, err := p.open()
	if err != nil {
		return nil, fmt.Errorf("open verbs: %w", err)
	}
	ds := newDomains(&p.opts, s, nics)
	f, err := conn.New(conn.Config{
		Info:       p.Info,
		Transport:  sockets{inet.Sockets{Provider: p.Name(), UserTimeout: inet.DefaultUserTimeout, TLS: p.opts.TLS, Logger: p.opts.Log}},
		Links:      1,
		Logger:     p.opts.Log,
		CheckAddr:  inet.CheckAddr,
		Attach:     ds.attach,
		OpenDomain: ds.watch,
	})
	if err != nil {
		return nil, errors.Join(err, closeNICs(nics))
	}
	return &network{Fabric: f, all: ds}, nil
}

// A network is a fabric with its devices.
type network struct {
	*conn.Fabric
	all    *domains
	closed sync.Once
}

// Close frees the fabric and the devices, or returns ErrBusy; see fabric.Fabric.
func (n *network) Close() error {
	err := n.Fabric.Close()
	if err == nil {
		n.closed.Do(func() { err = errors.Join(n.all.spares.close(), closeNICs(n.all.nics)) })
	}
	return err
}

func closeNICs(nics []*nic) error {
	var errs []error
	for _, n := range nics {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// sockets report to the data path which side dialed.
type sockets struct{ inet.Sockets }

// Prelude prepares a socket, and returns whether this side dialed.
func (s sockets) Prelude(conn net.Conn, active bool) (any, error) {
	_, err := s.Sockets.Prelude(conn, active)
	return active, err
}
