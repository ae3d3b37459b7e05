// SPDX-License-Identifier: MIT

// Package fabric is mori's transport API: the Kernel OpenFabrics Interface (kOFI), restated in Go.
//
// It contains interfaces, types, errors, the provider registry and hint matching, but no transport.
// Providers (core/provider/...) implement it. The packages io, shmem and ep use it and do not
// depend on a transport. docs/design/fabric.md maps each name of kOFI and libfabric to ours.
//
// # Objects and ownership
//
//	Registry ── Provider            GetInfo(hints) lists what is available, best first
//	   └─ Open ─▶ Fabric            holds a reference on its Provider until closed
//	                ├─ Listener     accepts connections: ConnReq
//	                ├─ EQ           connection events: connected, shutdown
//	                └─ Domain       memory and endpoints of one device
//	                     ├─ CQ        completions: successes in order, errors separately
//	                     ├─ Counter   how many ops succeeded and how many failed
//	                     ├─ AV        numbers for the addresses of EPRDM peers
//	                     ├─ MR        a registered local buffer; Raw is the key for peers
//	                     ├─ RemoteMR  a peer's region, as ops refer to it
//	                     └─ Endpoint  moves bytes: EPMsg to and from one peer, EPRDM those of an AV
//
// The caller closes what it opened, children first. Closing a parent with open children returns
// ErrBusy. So does closing a queue, counter or address vector that an open endpoint is bound to.
// Every Close after the first returns nil. All other calls on a closed object return ErrClosed.
//
// # Two kinds of endpoints
//
// An EPMsg is connected to one peer. Passive side: Listen, Accept a ConnReq, make an Endpoint, bind
// its queues, Enable, then Connector.Accept. Active side: make an Endpoint, bind, Enable,
// Connector.Connect. Each side may pass up to Limits.MaxPrivate bytes of private data. Longer data
// is ErrTooSmall and is never truncated. An endpoint connects at most once.
//
// An EPRDM (reliable datagram) needs no connection: make an Endpoint, bind its queues and an AV,
// Enable, send its Name to the peers. A peer inserts the name into its AV and passes the resulting
// number as Op.Dest. A receive takes a message from any peer; Completion.Src is the sender.
//
// # Moving bytes
//
// Submit accepts a prefix of a batch of Ops and returns its length. ErrAgain means that the queue
// is full: the caller reads completions and submits the rest again. An accepted op ends exactly
// once. If it succeeds, it has a Completion, unless the binding is selective and the op did not ask
// for one. If it fails, it always has an ErrEntry. A bound Counter counts every op.
//
// The completion level says what a success guarantees. A send's default is that the peer has the
// message (OpTransmitComplete). That of a write or atomic is that it is visible at the target
// (OpDeliveryComplete). A completed read is visible here. A flag selects another level, and a
// provider may guarantee more than requested. Info.Order says which ops to one peer take effect in
// the order of submission. Messages always arrive in that order, and OpFence orders other ops.
//
// Atomics work on arrays of numbers at the target and are atomic with respect to each other. 4- and
// 8-byte atomics on host memory are also atomic with respect to the CPU's. AtomicQuerier reports
// what a provider supports.
//
// A Seg refers to memory by address, since device memory has no slice. The caller keeps the memory
// alive until the op has ended. The provider owns Op.More, Op.RMore, Op.Blocks and Op.Atomic from
// Submit until the op has ended.
//
// # Waiting for completions
//
// There are four ways. CQ.Read polls. CQ.Wait parks a goroutine. The descriptor of a WaitObject
// wakes the program's own epoll loop. CQ.OnReady calls a function immediately. EQ and Counter have
// the first three.
//
// # Regions and their keys
//
// Software providers address a region by offset (RemoteMR.Base is 0) and accept a caller's
// RegionKey: an id, unique in its domain, and a 128-bit secret. The target compares the secret on
// every access. If the secret, the right or the bounds do not match, no memory is accessed, and the
// op ends with ErrNoKey, ErrAccess or ErrRange. Info.Mode and Info.MRMode say where a provider
// differs.
//
// # Errors
//
// Every error wraps an Errno, so errors.Is(err, fabric.ErrAgain) works. errors.Is(err,
// syscall.EAGAIN) works, too, for the numbers that libfabric shares with the system.
//
// # Writing a provider
//
// Implement Provider: a lower-case Name, its own version and the API version that it was written
// for, GetInfo and Open. The provider may live in any module; its users call Registry.Register.
// GetInfo describes all its abilities, with one offer for each endpoint type, and answers the hints
// with Match. Package core/fabric/util has the parts that need no hardware: CQ, EQ, Counter, AV,
// tables of regions and imports, receive matching, endpoint states, checks of ops, and atomics on
// host memory. If your EPMsg endpoint implements rdm.Carrier, package rdm gives you an EPRDM for
// free.
//
// The contract of the queues is the hard part:
//
//   - Reserve a place in the CQ before accepting an op.
//   - End each op exactly once, and do not access its memory afterwards.
//   - When a connection ends, stop accessing memory, then end the ops, then report it to the EQ.
//
// core/provider/mem is the smallest complete example. tests/go/example is a provider in another
// module. core/fabric/fabrictest tests a provider with five lines of code.
package fabric
