// SPDX-License-Identifier: MIT

// Package wire carries packets between emulated NICs: within one NIC ("loop"), or between processes
// over unix sockets or TCP. A NIC's GID contains the address at which it listens. Packets may be
// lost.
package wire

import (
	"crypto/rand"
	"fmt"

	"mori/core/gpunic/mlx5"
)

// A Wire carries packets to other NICs. It may lose packets; queue pairs retransmit them.
type Wire interface {
	// Send does not block. It encodes the packet before it returns.
	Send(to mlx5.GID, p *Packet)

	// Close closes the wire. After Close has returned, it delivers no packets.
	Close() error
}

// Kinds of GIDs, in their second byte; the first is gidPrefix. The rest is random, except for the
// address at which a TCP wire listens.
const (
	gidPrefix = 0xfd
	gidLoop   = 'l'
	gidUnix   = 'u'
	gidTCP    = 't'
)

func newGID(kind byte) (g mlx5.GID) {
	_, _ = rand.Read(g[:]) // never fails
	g[0], g[1] = gidPrefix, kind
	return g
}

// Open opens a wire of a kind, "loop", "unix" or "tcp", and makes the GID at which others reach it.
// It calls deliver with the packets that arrive.
func Open(kind string, deliver func(Packet)) (Wire, mlx5.GID, error) {
	switch kind {
	case "loop":
		return Loop{}, newGID(gidLoop), nil
	case "unix", "tcp":
		return openSocket(kind, deliver)
	}
	return nil, mlx5.GID{}, fmt.Errorf("wire %q: want loop, unix or tcp: %w", kind, mlx5.ErrArgument)
}

// Loop reaches no other NICs. A NIC's packets to itself do not use a wire.
type Loop struct{}

// Send drops the packet.
func (Loop) Send(mlx5.GID, *Packet) {}

// Close does nothing.
func (Loop) Close() error { return nil }
