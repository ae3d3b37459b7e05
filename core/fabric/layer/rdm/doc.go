// SPDX-License-Identifier: MIT

// Package rdm makes reliable datagram endpoints (EPRDM) of connected ones (EPMsg), which it calls
// carriers.
//
//	// In a provider's Domain.Endpoint:
//	ep := rdm.New(rdm.Config{Carrier: ..., Listen: ..., Limits: ..., Leave: ...})
//
// # How a peer is reached
//
// Each peer that this side sends to has one carrier, its route. The first op to a peer makes one
// and leaves the op with it; a goroutine connects it, within [DialTimeout], to the listener at the
// peer's name. The private data is a handshake: our own name. The listening side makes a carrier of
// its own for each handshake, which brings the asker's messages and accesses. If it has no route to
// the name in the handshake yet, the same carrier becomes that. When two endpoints dial each other
// at once, both connections stay, and each side keeps sending on its own: so the ops of one side to
// a peer go one way while that lasts, and stay in order.
//
// Receives are the endpoint's, in one RecvQueue that all carriers fill. Completions and counters of
// everything else are the carriers' own affair: they are bound to the same queues.
//
// # How a route ends
//
// The carrier ends its ops with error entries that name the peer and the cause, and is closed and
// forgotten. The next op to that peer makes another, which connects when the old one has ended
// everything. So a fence holds across them. Messages of the peer that arrived whole stay and wait
// for receives; no new connection is taken while more than [maxOrphaned] bytes of such wait.
//
// # Trust
//
// A peer says its own name, and is believed: Completion.Src and the route to that name follow from
// it. Who may connect at all is the provider's business, and below it the network's. A peer whose
// listener has no address that others can use, such as one that listens at all addresses, has a
// name that no address vector knows.
package rdm
