// SPDX-License-Identifier: MIT

// Package wire carries packets between emulated NICs: within one NIC ("loop"), or between processes
// over unix sockets or TCP. A NIC's GID says where it listens. Packets may be lost.
package wire

import (
	"crypto/rand"
	"fmt"

	"mori/core/gpunic/mlx5"
)

// A Wire takes packets to other NICs. It may lose them: queue pairs send again.
type Wire interface {
	// Send never waits. It encodes the packet before it returns.
	Send(to mlx5.GID, p *Packet)

	// Close ends the wire; nothing is delivered after it has returned.
	Close() error
}

// Kinds of GIDs, in their second byte; the first is gidPrefix. The rest is random, but for where a
// TCP wire listens.
const (
	gidPrefix = 0xfd
	gidLoop   = 'l'
	gidUnix   = 'u'
	gidTCP    = 't'
)

func newGID(kind byte) (g mlx5.GID) {
	_, _ = rand.Read(g[:]) // it does not fail
	g[0], g[1] = gidPrefix, kind
	return g
}

// Open begins a wire of a kind, "loop", "unix" or "tcp", and makes the GID that others reach it by.
// deliver gets the packets that arrive.
func Open(kind string, deliver func(Packet)) (Wire, mlx5.GID, error) {
	switch kind {
	case "loop":
		return Loop{}, newGID(gidLoop), nil
	case "unix", "tcp":
		return openSocket(kind, deliver)
	}
	return nil, mlx5.GID{}, fmt.Errorf("wire %q: want loop, unix or tcp: %w", kind, mlx5.ErrArgument)
}

// Loop reaches no other NICs; a NIC's packets to itself take no wire.
type Loop struct{}

// Send drops the packet.
func (Loop) Send(mlx5.GID, *Packet) {}

// Close does nothing.
func (Loop) Close() error { return nil }
