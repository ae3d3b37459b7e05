// SPDX-License-Identifier: MIT

package handshake

import (
	"context"
	"net"
	"time"

	"mori/core/fabric"
)

// DefaultWait bounds a handshake whose context has no deadline. It also bounds one on the passive
// side whose Config sets no limit.
const DefaultWait = 5 * time.Second

// A Transport makes the sockets of connections: *net.TCPConn or *net.UnixConn.
type Transport interface {
	// Listen listens at the address at. If at is empty, the transport chooses an address.
	Listen(ctx context.Context, at fabric.Addr) (net.Listener, error)

	// Dial connects one socket.
	Dial(ctx context.Context, to fabric.Addr) (net.Conn, error)

	// Prelude prepares a socket before the handshake: it sets socket options, or does an exchange
	// of the transport's own, such as passing file descriptors. It runs on both sides; active is
	// true on the side that dialed. The socket has a deadline, and an error closes it. The passive
	// side must not trust the peer yet. If no DataPath takes extra, the caller frees it with
	// Release.
	Prelude(conn net.Conn, active bool) (extra any, err error)

	// Addr returns a socket's address in the provider's text form.
	Addr(a net.Addr) fabric.Addr
}

// Sockets holds the connected sockets of one endpoint, and what the handshake reported about the
// peer.
type Sockets struct {
	Conns    []net.Conn
	Extra    any // what Transport.Prelude returned for the first socket
	Peer     fabric.Addr
	PeerTx   int    // operations that the peer may have pending
	Features uint16 // of the peer
}

// Close closes all sockets. It does not release Extra.
func (s *Sockets) Close() {
	for _, c := range s.Conns {
		if c != nil {
			_ = c.Close() // no data can be lost
		}
	}
}

// Release frees what Prelude returned, unless a DataPath took it. Otherwise descriptors and
// mappings would stay open until the next garbage collection.
func Release(extra any) {
	if r, ok := extra.(interface{ Release() }); ok {
		r.Release()
	}
}
