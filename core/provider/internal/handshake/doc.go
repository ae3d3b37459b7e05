// SPDX-License-Identifier: MIT

// Package handshake connects the sockets of an endpoint and exchanges the handshake of package
// frame over them.
//
//	active side     Dial      opens the sockets, sends a Handshake on each, reads the reply
//	passive side    Listener  accepts sockets, groups those of one endpoint as a Request
//
// Both sides get a Sockets: the connected sockets and what the handshake reported about the peer.
// The package does not know endpoints. A Transport supplies the sockets and may exchange data of
// its own before the handshake.
//
// A listener does not trust its peers. Half-open sockets, pending requests and the time for a
// handshake are bounded, for each address and in total.
package handshake
