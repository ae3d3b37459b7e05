// SPDX-License-Identifier: MIT

// Package control is the control plane of an engine: the slow connections over which engines prove
// who they are, learn where each other's transports listen, and ask each other for favours.
//
//   - Self is what an engine says of itself, and proves it with.
//   - Server answers peers. What it needs of its engine is the interface Host.
//   - Client asks one peer's Server.
//   - Tokens tie the data connections of a peer to a handshake on its control connection.
//   - TagQueue sends the tags of transfers, in batches.
//
// The package knows neither regions nor transports nor paths. The format of messages is in package
// message, which also describes the handshake.
//
// # Limits
//
// A server trusts nobody: a handshake ends within a time limit, each sort of client has its own
// slots, and a message allocates no more than its length. See maxUnfinished and the constants
// beside it.
package control
