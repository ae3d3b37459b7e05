// SPDX-License-Identifier: MIT

package control

import (
	"net"

	"mori/core/admission"
)

// Limits on the number of control connections. Beyond a limit, the least recently used connection
// of the same kind is closed. So unregistered clients compete only with each other. Registered
// peers and processes of this host have slots of their own.
const (
	maxUnfinished     = 512 // before their handshake is complete
	maxUnfinishedHost = 256 // of these, from one address
	maxUnfinishedUnix = 128 // before their handshake is complete, over the local socket
	maxKnown          = 512 // of peers that are registered here
	maxStrangers      = 512 // of others
	maxStrangersHost  = 256 // of these, from one address
	maxUnix           = 256 // over the local socket
)

// connSets holds the control connections by kind.
type connSets struct {
	unfinished, unfinishedUnix, known, strangers, unix *admission.Set
}

func newConnSets() connSets {
	return connSets{
		unfinished:     admission.NewSet(maxUnfinished, maxUnfinishedHost),
		unfinishedUnix: admission.NewSet(maxUnfinishedUnix, maxUnfinishedUnix),
		known:          admission.NewSet(maxKnown, maxKnown),
		strangers:      admission.NewSet(maxStrangers, maxStrangersHost),
		unix:           admission.NewSet(maxUnix, maxUnix),
	}
}

// A clientConn is a connection of a client. Only the goroutine that serves it touches its fields.
type clientConn struct {
	net.Conn
	local bool           // over the local socket
	in    *admission.Set // the set that counts it
	token []byte         // sent with the Welcome; invalid once the connection ends
}

// enter counts c in a set and closes the connection that is evicted for c.
func (c *clientConn) enter(s *admission.Set) {
	if c.in != nil {
		c.in.Remove(c.Conn)
	}
	c.in = s
	if old := s.Add(c.Conn); old != nil {
		_ = old.Close() // its own goroutine notices
	}
}
