// SPDX-License-Identifier: MIT

package tcp

import (
	"context"
	"net"

	"mori/core/fabric"
	"mori/core/provider/internal/stream"
)

// NewPacking makes a provider that packs whatever gets smaller, at any speed.
func NewPacking(opts Options) *Provider {
	p := New(opts)
	p.pack = stream.PackSmaller
	return p
}

// Rate is what the kernel has measured.
var Rate = rate

// A Transport makes the sockets of providers.
type Transport interface {
	Listen(ctx context.Context, at fabric.Addr) (net.Listener, error)
	Dial(ctx context.Context, to fabric.Addr) (net.Conn, error)
}

// TransportOf is that of a provider with opts.
func TransportOf(opts Options) Transport { return transport{opts} }
