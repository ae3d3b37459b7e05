// SPDX-License-Identifier: MIT

// Package handshake connects the sockets of an endpoint and exchanges the handshake of package
// frame over them.
//
//	active side     Dial      opens the sockets, sends a Handshake on each, reads the reply
//	passive side    Listener  accepts sockets, groups those of one endpoint as a Request
//
// Both sides end with a Sockets: connected sockets and what the handshake said of the peer. The
// package knows no endpoint. A Transport supplies the sockets and may exchange data of its own
// before the handshake.
//
// A listener trusts nobody: half-open sockets, pending requests and the time for a handshake are
// bounded, for each address and in all.
package handshake
