// SPDX-License-Identifier: MIT

package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/inet"
)

// Options of a Provider. The zero value is good.
type Options struct {
	// Links are the connections of an endpoint; 0 is DefaultLinks. The dialer's number counts.
	Links int

	// UserTimeout is how long sent bytes may stay unacknowledged before the connection counts as
	// dead; 0 is 30 s.
	UserTimeout time.Duration

	// TxSize and RxSize are Limits.TxSize and Limits.RxSize; 0 is 1024.
	TxSize, RxSize int

	// TLS, if set, encrypts every connection, and says which certificates are shown and believed.
	TLS *tls.Config

	// Sums has the payload of all that this side sends and reads checked with crc32c, end to end.
	Sums bool

	// Compress has the payload of writes and of answers to reads packed with zstd, from 64 KiB to 4
	// MiB, where the bytes get through sooner for it: where they become fewer, and the connection
	// is slow beside what packing them takes.
	Compress bool

	// Packed, if set, counts what Compress has packed.
	Packed *atomic.Uint64

	// Logger takes one line for each connection that breaks the protocol; nil is slog.Default().
	Logger *slog.Logger
}

// DefaultLinks is how many connections an endpoint has. On 2 cores, as a share of plain sockets at
// their best, 1, 2 and 4 connections moved 128 x 1 MiB at 0.73, 0.89 and 0.94 (reads 0.74, 0.80,
// 1.0), and 1024 x 4 KiB blocks at 0.56, 0.68 and 0.73 (reads 0.44, 0.50, 0.71).
const DefaultLinks = 4

// A Provider is the fabric.Provider "tcp".
type Provider struct {
	conn.Offer
	opts Options
	pack conn.Compression
}

// Registration is what package core knows of this provider.
var Registration = fabric.Registration{
	Name: "tcp", Scope: fabric.ScopeNetwork, Medium: fabric.MediumSocket, HostMemory: true, GPUMemory: true, Preference: 10,
	Diagnose: diagnose,
}

// diagnose says how mori reaches peers over TCP, which works on any host.
func diagnose(p fabric.Peers) fabric.Diagnosis {
	d := fabric.Diagnosis{Path: "tcp"}
	if p.GPUMemory {
		d.Reasons = []string{"GPU memory passes through pinned host memory on both sides"}
	}
	return d
}

var _ fabric.Provider = (*Provider)(nil)

// New makes a provider.
func New(opts Options) *Provider {
	if opts.Links == 0 {
		opts.Links = DefaultLinks
	}
	if opts.UserTimeout == 0 {
		opts.UserTimeout = inet.DefaultUserTimeout
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	limits := fabric.Limits{TxSize: opts.TxSize, RxSize: opts.RxSize, BestOp: bestOp}
	p := &Provider{Offer: conn.NewOffer("tcp", "ip", fabric.CapRemoteComm, limits), opts: opts}
	if opts.Compress {
		p.pack = conn.CompressIfFaster
	}
	return p
}

// bestOp is the length at which a large transfer is cut.
const bestOp = 1 << 20

// GetInfo answers with an Info for each type of endpoint that satisfies hints, EPMsg first; see
// fabric.Provider. No name is looked up.
func (p *Provider) GetInfo(_ context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error) {
	msg := p.Info
	if node != "" || service != "" {
		msg.Dest = fabric.Addr(net.JoinHostPort(node, service))
	}
	if err := conn.OfferDevice(&msg, hints); err != nil {
		return nil, err
	}
	return conn.Answers(hints, msg)
}

// Open makes the fabric; see fabric.Provider.
func (p *Provider) Open(_ context.Context, in *fabric.Info) (fabric.Fabric, error) {
	if in != nil && in.Provider != "" && in.Provider != p.Name() {
		return nil, fmt.Errorf("open %s as tcp: %w", in.Provider, fabric.ErrNoData)
	}
	cfg := conn.Config{Info: p.Info, Transport: p.sockets(), Links: p.opts.Links, Checksum: p.opts.Sums, Logger: p.opts.Logger, CheckAddr: inet.CheckAddr,
		Compress: p.pack, Decompress: true, Compressed: p.opts.Packed, Rate: rate}
	return conn.New(cfg)
}

func (p *Provider) sockets() inet.Sockets {
	return inet.Sockets{Provider: p.Name(), UserTimeout: p.opts.UserTimeout, TLS: p.opts.TLS, Logger: p.opts.Logger}
}
