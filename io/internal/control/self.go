// SPDX-License-Identifier: MIT

package control

import (
	"crypto/tls"
	"log/slog"
	"time"

	"mori/io/internal/identity"
)

// A Self is an engine's identity on the control plane, with the keys that prove it. It does not
// change once a Server or Client uses it.
type Self struct {
	Key         string
	NodeID      string
	Incarnation uint64
	Secret      identity.Secret
	Signer      identity.Signer
	TLS         *tls.Config // nil: plain connections
	Log         *slog.Logger

	// Handshake limits the time from a client's connection to its Welcome; 0 is DefaultHandshake.
	Handshake time.Duration
}

// DefaultHandshake is the default time limit of a handshake.
const DefaultHandshake = 5 * time.Second

// idleLimit is the time after which a Server closes the connection of a silent client.
const idleLimit = 60 * time.Second

// ID returns the engine's identity.
func (s *Self) ID() identity.ID {
	return identity.ID{Key: s.Key, Incarnation: s.Incarnation, Public: s.Signer.Public}
}

func (s *Self) handshakeLimit() time.Duration {
	if s.Handshake > 0 {
		return s.Handshake
	}
	return DefaultHandshake
}
