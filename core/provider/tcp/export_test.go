// SPDX-License-Identifier: MIT

package tcp

import (
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/inet"
)

// NewPacking returns a provider that compresses every payload that becomes smaller, at any rate.
func NewPacking(opts Options) *Provider {
	p := New(opts)
	p.pack = conn.CompressSmaller
	return p
}

// Rate returns the rate that the kernel has measured.
var Rate = rate

// SocketsOf returns the sockets of a provider with opts.
func SocketsOf(opts Options) inet.Sockets { return New(opts).sockets() }
