// SPDX-License-Identifier: MIT

// Package ofi is a provider over a real libfabric, version 1.17 or newer, which is loaded when it
// is first asked for. It reaches networks that there is no code for here, and the conformance suite
// runs on it to find cases that ask for more than the words promise.
//
// It is built with the tag ofi only (package native/libfabric says what that needs); without it the
// package is empty. [New] makes a provider of what one libfabric provider offers, such as "tcp",
// "tcp;ofi_rxm" or "shm", or of all. Where there is no libfabric, GetInfo and Open answer
// ErrNotSupported with the loader's words.
//
// # What is libfabric's and what is ours
//
// Every byte of an op is moved by libfabric, and every success is one that libfabric reported. Ours
// are the queues, counters and address vectors that the caller sees (core/fabric/util), because
// their contracts are stricter: places are reserved, a hook is called for entries, numbers begin at
// 1. One goroutine for each open fabric polls libfabric's queues and fills ours; it is also what
// makes providers with manual progress move. Counters count in it, and not by fi_cntr.
//
// An accepted op has a slot, whose C memory is libfabric's context of the op, and stands in the
// lane of its peer until libfabric takes it. FI_EAGAIN leaves it there, and a fence holds its lane
// up until the ops before it ended, since few providers offer FI_FENCE. Within a lane ops are
// posted in order, lanes do not wait for one another.
//
// # What is weaker than at other providers
//
// Regions have no secret (ModeKeyIsProof). Where the transport is a connection, an access that the
// target refuses ends it (ModeDenialFatal). A region that closes answers no new access, but one
// that was already let in may still land. libfabric reports a shutdown and a broken connection
// alike: both are ErrShutdown. A send that completes on delivery is ErrNotSupported where
// there is no FI_MATCH_COMPLETE, but over tcp: FI_DELIVERY_COMPLETE may come while the message
// waits in memory of libfabric. What single providers of 1.17 do otherwise is in the table of the
// tests; do not use shm where an op may be refused or a peer may go, since it crashes.
package ofi
