// SPDX-License-Identifier: MIT

package emu

import (
	"crypto/rand"
	"fmt"

	"mori/core/gpunic/mlx5"
)

// A wire takes packets to other NICs. It may lose them: queue pairs send again.
type wire interface {
	// send never waits. It encodes the packet before it returns.
	send(to mlx5.GID, p *packet)

	// close ends what was begun; nothing is delivered after it has returned.
	close() error
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

// openWire begins a wire and makes the GID that others reach it by.
func openWire(kind string, deliver func(packet)) (wire, mlx5.GID, error) {
	switch kind {
	case "loop":
		return loop{}, newGID(gidLoop), nil
	case "unix", "tcp":
		return openSocket(kind, deliver)
	}
	return nil, mlx5.GID{}, fmt.Errorf("wire %q: want loop, unix or tcp: %w", kind, mlx5.ErrArgument)
}

// loop has no other NICs; a NIC's packets to itself take no wire.
type loop struct{}

func (loop) send(mlx5.GID, *packet) {}
func (loop) close() error           { return nil }
