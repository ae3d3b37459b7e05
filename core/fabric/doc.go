// SPDX-License-Identifier: MIT

// Package fabric is the one transport API of mori: the Kernel OpenFabrics Interface (kOFI) restated in Go.
//
// It holds words only: interfaces, types, errors, the provider registry and hint matching. Providers
// (core/provider/...) implement it; io, shmem and ep use it and know no transport.
//
// # The objects and who closes what
//
//	Registry ── Provider            GetInfo(hints) lists what there is, best first
//	   └─ Open ─▶ Fabric            holds a reference on its Provider until closed
//	                ├─ Listener     accepts connections: ConnReq
//	                ├─ EQ           connection events: connected, shutdown
//	                └─ Domain       memory and endpoints of one device
//	                     ├─ CQ      completions, successes in line and errors beside it
//	                     ├─ MR      a local buffer others may touch; Raw travels, Import receives it
//	                     └─ Endpoint  moves bytes to and from one peer
//
// The caller closes what it opened, children first: closing a parent with open children is ErrBusy.
// Every Close after the first returns nil. A closed object answers every other call with ErrClosed.
//
// # The life of a connection
//
// Passive side: Listen, Accept a ConnReq, make an Endpoint, bind its queues, Enable, then Connector.Accept.
// Active side: make an Endpoint, bind, Enable, Connector.Connect. Both sides hand over up to
// Limits.MaxPrivate bytes of private data; longer data is ErrTooSmall and never truncated. An endpoint
// connects at most once in its life.
//
// # Moving bytes
//
// Submit takes a prefix of a batch of Ops and says how many; ErrAgain means the queue is full and the rest
// is to be submitted again after completions were read. An accepted op ends exactly once: with a Completion
// (if it asked for one, or the binding is not selective) or with an ErrEntry. Failed ops always produce an
// ErrEntry, asked for or not. A write's completion means that its bytes are visible at the target; a read's,
// that they are visible here. Ops are not ordered among each other, unless OpFence says so, but
// sends arrive in submission order.
//
// Memory is named by address (Seg), since device memory has no slice. The owner keeps it alive until the op
// ended. Op.More and Op.RMore belong to the provider from Submit until the op ended.
//
// # Regions and their keys
//
// Software providers address a region by offset (RemoteMR.Base is 0) and take a caller's RegionKey: an id,
// unique in its domain, and a 128-bit secret which the target compares on every access. Without the
// secret, the right or the bounds nothing is touched, and the op ends with ErrAccess, ErrNoKey or ErrRange.
//
// # Errors
//
// All errors wrap an Errno, so errors.Is(err, fabric.ErrAgain) works, and so does the system's own
// errors.Is(err, syscall.EAGAIN) where libfabric shares the number.
package fabric
