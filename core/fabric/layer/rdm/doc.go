// SPDX-License-Identifier: MIT

// Package rdm builds reliable datagram endpoints (EPRDM) from connected ones (EPMsg), which it
// calls carriers.
//
//	// In a provider's Domain.Endpoint:
//	ep := rdm.New(rdm.Config{Carrier: ..., Listen: ..., Limits: ..., Leave: ...})
//
// # Routes to peers
//
// Each peer that this side sends to has one carrier, its route. The first op to a peer makes a
// carrier and queues the op in it. A goroutine connects it, within [DialTimeout], to the listener
// at the peer's name. The private data is a handshake that contains our own name.
//
// The listening side makes a carrier for each handshake, which receives the peer's messages and
// accesses. If it has no route to the name in the handshake yet, this carrier becomes the route.
// When two endpoints dial each other at once, both connections stay, and each side keeps sending on
// its own. So all ops of one side to a peer use one connection while it lasts, and stay in order.
//
// Receives belong to the endpoint: all carriers fill one RecvQueue. The carriers report all other
// completions and counts themselves, since they are bound to the same queues.
//
// # End of a route
//
// The carrier ends its ops with error entries that name the peer and the cause. Then it is closed
// and removed. The next op to that peer makes a new carrier, which connects once the old one has
// ended all its ops, so a fence holds across the two. The peer's complete messages stay and wait
// for receives. While more than [maxOrphaned] bytes of them wait, the endpoint accepts no new
// connection.
//
// # Trust
//
// A peer states its own name, and rdm does not verify it. Completion.Src and the route to that name
// depend on it. The provider, and below it the network, decides who may connect. Some listeners
// have no address that others can use, for example those that listen on all addresses. Such a
// peer's name is in no address vector.
package rdm
