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

// Options configures a Provider. The zero value is ready to use.
type Options struct {
	// Links is the number of TCP connections of an endpoint; 0 means DefaultLinks. The dialer's
	// number applies.
	Links int

	// UserTimeout is how long sent bytes may stay unacknowledged before the connection is
	// considered dead; 0 means 30 s.
	UserTimeout time.Duration

	// TxSize and RxSize set Limits.TxSize and Limits.RxSize; 0 means 1024.
	TxSize, RxSize int

	// TLS, if set, encrypts every connection, and says which certificates are shown and trusted.
	TLS *tls.Config

	// Sums enables end-to-end crc32c checksums of all payload that this side sends and reads.
	Sums bool

	// Compress enables zstd compression of the payload of writes and read replies, from 64 KiB to 4
	// MiB. A payload is compressed if that makes its bytes arrive sooner: if it becomes smaller,
	// and the connection is slow compared with the compression.
	Compress bool

	// Packed, if set, counts the payloads that Compress has compressed.
	Packed *atomic.Uint64

	// Logger gets one line for each connection that breaks the protocol; nil means slog.Default().
	Logger *slog.Logger
}

// DefaultLinks is how many TCP connections an endpoint has. On 2 cores, as a share of the best rate
// of plain sockets:
//
//	connections                   1     2     4
//	128 x 1 MiB, writes           0.73  0.89  0.94
//	128 x 1 MiB, reads            0.74  0.80  1.0
//	1024 x 4 KiB blocks, writes   0.56  0.68  0.73
//	1024 x 4 KiB blocks, reads    0.44  0.50  0.71
const DefaultLinks = 4

// A Provider is the fabric.Provider "tcp".
type Provider struct {
	conn.Offer
	opts Options
	pack conn.Compression
}

// Registration describes this provider to package core.
var Registration = fabric.Registration{
	Name: "tcp", Scope: fabric.ScopeNetwork, Medium: fabric.MediumSocket, HostMemory: true, GPUMemory: true, Preference: 10,
	Diagnose: diagnose,
}

// diagnose reports how mori reaches peers over TCP, which works on any host.
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

// bestOp is the length in bytes at which a large transfer is cut.
const bestOp = 1 << 20

// GetInfo answers with an Info for each type of endpoint that satisfies hints, EPMsg first; see
// fabric.Provider. It does no name lookup.
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
