// SPDX-License-Identifier: MIT

// Package transport wraps providers for an engine.
//
//   - A Transport is one provider: its domain, its listener, and the callbacks for ended
//     connections.
//   - A Conn is a connection that a peer opened to it. Notifications of what arrives over it go to
//     the peer's arrivals.Log.
//
// Package path opens the connections to peers, with endpoints of a Transport.
package transport
