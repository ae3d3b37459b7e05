// SPDX-License-Identifier: MIT

package control

import (
	"net"

	"mori/core/admission"
)

// The most control connections at once. Beyond a limit the least recently used connection of the
// same sort is closed. So strangers compete with each other only, and peers that are registered
// here and processes of this host have slots of their own.
const (
	maxUnfinished     = 512 // before their handshake is complete
	maxUnfinishedHost = 256 // of these, from one address
	maxUnfinishedUnix = 128 // before their handshake is complete, over the local socket
	maxKnown          = 512 // of peers that are registered here
	maxStrangers      = 512 // of others
	maxStrangersHost  = 256 // of these, from one address
	maxUnix           = 256 // over the local socket
)

// connSets are the control connections by sort.
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
	in    *admission.Set // that it counts against
	token []byte         // given with the Welcome; invalid once the connection ends
}

// enter counts c against a set and closes the connection that leaves it for c.
func (c *clientConn) enter(s *admission.Set) {
	if c.in != nil {
		c.in.Remove(c.Conn)
	}
	c.in = s
	if old := s.Add(c.Conn); old != nil {
		_ = old.Close() // its own goroutine notices
	}
}
