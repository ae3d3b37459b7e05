// SPDX-License-Identifier: MIT

// Package ofi is a provider that uses libfabric, version 1.17 or newer, and loads it when it is
// first needed. It reaches networks for which mori has no code of its own. The conformance suite
// also runs on it, to find cases that require more than the contract promises.
//
// The package is built only with the tag ofi (see package native/libfabric for requirements);
// without it the package is empty. [New] makes a provider for the offers of one libfabric provider,
// such as "tcp", "tcp;ofi_rxm" or "shm", or of all. If libfabric is not available, GetInfo and Open
// return ErrNotSupported with the loader's message.
//
// # What libfabric does and what ofi does
//
// libfabric moves every byte of an op and reports every success. The queues, counters and address
// vectors that the caller sees are those of core/fabric/util, because their contracts are stricter:
// they reserve places, call a hook for entries, and number addresses from 1. One goroutine for each
// open fabric polls libfabric's queues and fills ours. It also drives providers with manual
// progress. Counters do not use fi_cntr.
//
// An accepted op has a slot, whose C memory is libfabric's context of the op. The op is queued in
// the lane of its peer until libfabric accepts it. After FI_EAGAIN it stays there. A fence blocks
// its lane until the earlier ops have ended, since few providers support FI_FENCE. Ops of a lane
// are posted in order; lanes do not wait for each other.
//
// # Weaker guarantees than other providers
//
//   - Regions have no secret (ModeKeyIsProof).
//   - If the transport is a connection, an access that the target denies ends it
//     (ModeDenialFatal).
//   - A closed region accepts no new access, but an access in progress may still write to it.
//   - libfabric does not distinguish a shutdown from a broken connection: both are ErrShutdown.
//   - A send that completes on delivery is ErrNotSupported without FI_MATCH_COMPLETE, except over
//     tcp: FI_DELIVERY_COMPLETE may come while the message waits in memory of libfabric.
//
// The table of the tests lists deviations of single providers of 1.17. Do not use shm if an op may
// be denied or a peer may end, since shm then crashes.
package ofi
