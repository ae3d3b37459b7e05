// SPDX-License-Identifier: MIT

package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"mori/core/device"
	"mori/core/device/survey"
	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/handshake"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
)

// bestOp is so long that the launch of a kernel, or the end of a copy, costs little in comparison.
// All blocks of a batch then form one list.
const bestOp = 256 << 20

// Options configure a Provider. The zero value is valid.
type Options struct {
	Log *slog.Logger // nil: slog.Default()

	// Blocks is how many thread blocks copy a list of scattered pieces, one list after the other. 0
	// uses MORI_P2P_BLOCKS. If that is not set, either, the number depends on the size, and lists run
	// concurrently.
	Blocks int

	// releaseWait is how long to wait for a peer or a device, 0 for pathbase.ReleaseWait. For tests.
	releaseWait time.Duration
}

// A Provider is the transport within this host for transfers with GPU memory at one end at least.
type Provider struct {
	conn.Offer
	opts Options
}

// Registration describes this provider to package core.
var Registration = fabric.Registration{
	Name: "p2p", Scope: fabric.ScopeHost, Medium: fabric.MediumGPU, GPUMemory: true, Preference: 40,
	Diagnose: diagnose,
}

// diagnose says what makes copies between the GPUs of this host slow.
func diagnose(fabric.Peers) fabric.Diagnosis {
	devices, err := device.Devices()
	if err != nil {
		return fabric.Diagnosis{Reasons: []string{err.Error()}}
	}
	return fabric.Diagnosis{Path: "p2p/gpu", Reasons: append(survey.WeakLinks(devices), survey.WithoutKernels(devices)...)}
}

var _ fabric.Provider = (*Provider)(nil)

// New makes a provider. It starts no goroutines and loads no drivers.
func New(opts Options) *Provider {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.releaseWait == 0 {
		opts.releaseWait = pathbase.ReleaseWait
	}
	p := &Provider{conn.NewOffer("p2p", "host", fabric.CapHMEM, fabric.Limits{BestOp: bestOp}), opts}
	p.Info.MRMode = fabric.MRHMEM
	l := &p.Info.Limits
	l.BlockLimit = min(l.SegLimit, l.RSegLimit) // the stream takes blocks as segments
	return p
}

// GetInfo returns an Info for each endpoint type that satisfies hints, EPMsg first, if this host
// has a GPU. node is empty; service is the name to connect to, "@name" or "name".
func (p *Provider) GetInfo(_ context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error) {
	if node != "" {
		return nil, fmt.Errorf("p2p to node %q: peers are processes of this host: %w", node, fabric.ErrNoData)
	}
	msg := p.Info
	if service != "" {
		msg.Dest = fabric.Addr("@" + strings.TrimPrefix(service, "@"))
	}
	answers, err := conn.Answers(hints, msg)
	if err != nil {
		return nil, err
	}
	if _, err := device.Devices(); err != nil { // not earlier: it loads the drivers
		return nil, fmt.Errorf("p2p copies between GPUs, and %w: %w", err, fabric.ErrNoData)
	}
	return answers, nil
}

// Open returns the fabric of this host.
func (p *Provider) Open(_ context.Context, in *fabric.Info) (fabric.Fabric, error) {
	if in.Provider != "" && in.Provider != "p2p" {
		return nil, fmt.Errorf("open fabric of provider %q as p2p: %w", in.Provider, fabric.ErrInvalid)
	}
	if _, err := device.Devices(); err != nil {
		return nil, fmt.Errorf("open p2p: %w: %w", err, fabric.ErrNotSupported)
	}
	domains := newDomains(&p.opts)
	return conn.New(conn.Config{
		Info:       p.Info,
		Transport:  transport{},
		Links:      1,
		Logger:     p.opts.Log,
		CheckAddr:  local.CheckAddr,
		Attach:     domains.attach,
		OpenDomain: domains.watch,
	})
}

// A transport makes abstract unix sockets whose connections begin with p2p's handshake.
type transport struct{ local.Sockets }

var _ handshake.Transport = transport{}

// Prelude exchanges handshakes.
func (transport) Prelude(conn net.Conn, _ bool) (any, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("p2p over something other than a unix socket")
	}
	p, err := shakeHands(unixConn)
	if err != nil {
		return nil, err // not a nil *peerProcess in an interface
	}
	return p, nil
}
