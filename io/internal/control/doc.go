// SPDX-License-Identifier: MIT

// Package control is the control plane of an engine: the slow connections between engines. Over
// them engines prove their identity, learn where each other's transports listen, and send requests.
//
//   - Self is an engine's identity, with the keys that prove it.
//   - Server answers peers. It calls its engine through the interface Host.
//   - Client sends requests to one peer's Server.
//   - Tokens tie the data connections of a peer to a handshake on its control connection.
//   - TagQueue sends the tags of transfers, in batches.
//
// The package does not depend on regions, transports or paths. The format of messages is in package
// message, which also describes the handshake.
//
// # Limits
//
// A server trusts no client. A handshake has a time limit, each kind of client has its own slots,
// and a message cannot make the server allocate more than its length. See maxUnfinished and the
// constants beside it.
package control
