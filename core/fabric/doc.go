// SPDX-License-Identifier: MIT

// Package fabric is the one transport API of mori: the Kernel OpenFabrics Interface (kOFI) restated
// in Go.
//
// It holds words only: interfaces, types, errors, the provider registry and hint matching.
// Providers (core/provider/...) implement it; io, shmem and ep use it and know no transport.
// docs/design/fabric.md maps each name of kOFI and libfabric to ours.
//
// # The objects and who closes what
//
//	Registry ── Provider            GetInfo(hints) lists what there is, best first
//	   └─ Open ─▶ Fabric            holds a reference on its Provider until closed
//	                ├─ Listener     accepts connections: ConnReq
//	                ├─ EQ           connection events: connected, shutdown
//	                └─ Domain       memory and endpoints of one device
//	                     ├─ CQ        completions, successes in line and errors beside it
//	                     ├─ Counter   how many ops ended well, and how many did not
//	                     ├─ AV        numbers for the addresses of EPRDM peers
//	                     ├─ MR        a local buffer that others may touch; Raw is its key
//	                     ├─ RemoteMR  a peer's buffer, as ops name it
//	                     └─ Endpoint  moves bytes: EPMsg to and from one peer, EPRDM those of an AV
//
// The caller closes what it opened, children first: closing a parent with open children is ErrBusy,
// and so is closing a queue, counter or vector that an open endpoint is bound to. Every Close after
// the first returns nil. A closed object answers every other call with ErrClosed.
//
// # Two kinds of endpoints
//
// EPMsg connects. Passive side: Listen, Accept a ConnReq, make an Endpoint, bind its queues,
// Enable, then Connector.Accept. Active side: make an Endpoint, bind, Enable, Connector.Connect.
// Both sides hand over up to Limits.MaxPrivate bytes of private data; longer data is ErrTooSmall
// and never truncated. An endpoint connects at most once in its life.
//
// EPRDM, reliable datagrams, needs no connecting: make an Endpoint, bind its queues and an AV,
// Enable, send its Name to the peers. A peer inserts the name into its AV, and puts the number that
// it gets into Op.Dest. Receives take messages of any peer, and Completion.Src says whose.
//
// # Moving bytes
//
// Submit takes a prefix of a batch of Ops and says how many; ErrAgain means the queue is full and
// the rest is to be submitted again after completions were read. An accepted op ends exactly once:
// with a Completion (if it asked for one, or the binding is not selective) or with an ErrEntry.
// Failed ops always produce an ErrEntry, asked for or not. A bound Counter counts both, asked for
// or not.
//
// What a completion promises is its level: a send's, that the peer has the message
// (OpTransmitComplete); a write's and an atomic's, that it is visible at the target
// (OpDeliveryComplete); a read's, that the bytes are visible here. A flag asks for another level,
// and a provider may promise more than asked. Info.Order says which ops to one peer take effect in
// the order of submission: messages always arrive in it, and OpFence orders the rest.
//
// Atomics work on arrays of numbers at the target, are atomic among each other, and those of 4 and
// 8 bytes on host memory also with the CPU's own. AtomicQuerier reports what a provider has.
//
// Memory is named by address (Seg), since device memory has no slice. The owner keeps it alive
// until the op ended. Op.More, Op.RMore, Op.Blocks and Op.Atomic belong to the provider from Submit
// until the op ended.
//
// # Hearing of completions
//
// In four ways: CQ.Read polls; CQ.Wait parks a goroutine; the descriptor of a WaitObject wakes an
// epoll loop of the program's own; CQ.OnReady calls a function on the spot. EQ and Counter have the
// first three.
//
// # Regions and their keys
//
// Software providers address a region by offset (RemoteMR.Base is 0) and take a caller's RegionKey:
// an id, unique in its domain, and a 128-bit secret which the target compares on every access.
// Without the secret, the right or the bounds nothing is touched, and the op ends with ErrAccess,
// ErrNoKey or ErrRange. Info.Mode and Info.MRMode say where a provider is different.
//
// # Errors
//
// All errors wrap an Errno, so errors.Is(err, fabric.ErrAgain) works, and so does the system's own
// errors.Is(err, syscall.EAGAIN) where libfabric shares the number.
//
// # Writing a provider
//
// Implement Provider: a lower-case Name, the Version of its own and the API version that it was
// written against, GetInfo and Open. It may live in any module; its users call
// Registry.Register. GetInfo describes all that it can do in an offer for each endpoint type, and
// lets Match answer the hints. What needs no hardware is in core/fabric/util: CQ, EQ, Counter, AV,
// the tables of regions and imports, receive matching, an endpoint's states, the checks of ops,
// atomics on host memory. If your EPMsg endpoint implements rdm.Carrier, package rdm gives you an
// EPRDM for free.
//
// The contract of the queues is the hard part:
//
//   - Reserve a place in the CQ before an op is accepted.
//   - End each op exactly once, and touch none of its memory after that.
//   - When a connection ends, leave the memory first, then end the ops, then report it to the EQ.
//
// core/provider/mem shows all of it in the least code. tests/go/example is a provider outside of
// this module. core/fabric/fabrictest tests a provider in five lines of code.
package fabric
