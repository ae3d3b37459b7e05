// SPDX-License-Identifier: MIT

// Package transport has the providers as an engine uses them.
//
//   - A Transport is one provider: its domain, where it listens, and who is notified when a
//     connection ends.
//   - A Conn is a connection that a peer opened to it. Notifications of what arrives over it go to
//     the peer's arrivals.Log.
//
// Connections to peers are made by package path, with endpoints of a Transport.
package transport
