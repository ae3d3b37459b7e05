// SPDX-License-Identifier: MIT

package tcp

import (
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/inet"
)

// NewPacking makes a provider that packs whatever gets smaller, at any speed.
func NewPacking(opts Options) *Provider {
	p := New(opts)
	p.pack = conn.CompressSmaller
	return p
}

// Rate is what the kernel has measured.
var Rate = rate

// SocketsOf are those of a provider with opts.
func SocketsOf(opts Options) inet.Sockets { return New(opts).sockets() }
