// SPDX-License-Identifier: MIT

// Package verbs is the transport over RDMA NICs, with libibverbs: InfiniBand, RoCE and other
// devices with reliable connections. The NIC reads and writes registered memory at both ends,
// without a process of the target.
//
//	p := verbs.New(verbs.Options{})
//	infos, err := p.GetInfo(ctx, "", "", nil)       // ErrNoData says why there is no device to use
//	fab, err := p.Open(ctx, infos[0])
//	lis, err := fab.Listen(ctx, infos[0])           // info.Src "host:port" of TCP, or empty
//	ep.Connect(ctx, lis.Addr(), nil)                // ep from fab.Domain(...).Endpoint(...)
//
// # Where a block's bytes are posted
//
//	dataPath.RMA         takes a read or write over from package conn           path.go
//	dataPath.start       waits for the rails, finds the grant, checks the op
//	payload.list         local and remote pieces as runs, registers memory      list.go, payload.go
//	pendingOp.post       work requests of the runs, divided among queue pairs   post.go
//	pair.add, pair.feed  ibv_post_send, as far as the queue has room            pair.go
//	rail.poll            takes completions                                      rail.go
//	pendingOp.completed  completes the op                                       pending.go
//
// # Which bytes travel where
//
// A connection begins as one of TCP, in the protocol of package conn, and addresses are TCP's. Over
// it the two sides agree on rails (setup.go). A rail is a NIC at either end, with a completion
// queue and some queue pairs.
//
//	handshake, shutdown, grants of regions     TCP
//	reads and writes of registered memory      all rails
//	remote data of a write                     the queue pairs of the write, behind it (notice.go)
//	messages, atomics and their replies        a queue pair of their own on the first rail (wire.go)
//	what a NIC cannot do                       TCP
//
// A read or write becomes one work request for each run of bytes that is contiguous at both ends.
// Adjacent runs are merged, and up to Settings.SendSGE local pieces share a work request. Long ops
// are spread over all queue pairs of all rails; a short op takes the next one. The work requests of
// an op are posted with one call for each queue pair. Only the last one asks for a completion, and
// others so that the queue does not run full without one.
//
// Messages and atomics remain frames of package conn, so they keep its order, bounds and checks.
// They travel as sends into receives of 8 KiB, under credits, so that no receiver is ever without a
// receive. Their own queue pair keeps short frames from waiting behind long writes. Both ends copy
// the bytes once: a message takes two to three times as long as a write of as many bytes on the
// emulated devices (BenchmarkMessages). The CPU of the target executes atomics, since on most
// machines a NIC's atomics are not atomic towards the CPU.
//
// Messages stay on TCP if TLS is set, since nothing encrypts what NICs send, and if a device has no
// room for the queue pair. A NIC cannot do ops of no bytes, and may refuse host memory or memory of
// a GPU; TCP carries those ops, too.
//
// # Local memory that is not registered
//
// An op may have local memory of no region (spare.go). Up to 256 KiB its bytes are copied from or
// to registered memory; a longer op has its memory registered until it ends. Such a write has 0.97
// to 1.0 of the speed of one from registered memory up to 256 KiB, 0.86 at 1 MiB and 0.96 at 16 MiB
// on the emulated devices (BenchmarkUnregistered, medians of 500 and 100).
//
// No registration outlives its op, so none can be stale: TestOtherMemoryAtTheSameAddress unmaps the
// memory, maps other memory over it, empties it (MADV_DONTNEED) and forks. A cache by address would
// need to hear of such changes. The one way without privileges is userfaultfd, which
//
//   - does not report a hole punched into a memfd (tried on Linux 6.18);
//   - reports MADV_DONTNEED before the pages go, so a registration made in between is stale;
//   - blocks each munmap and madvise until its events are read, also those of Go's own heap, made
//     where Go cannot run the reader: libfabric met such deadlocks (its issues 5554 and 5580);
//   - is not among the system calls that Docker allows by default.
//
// Callers that use the same memory again register it, and lose nothing.
//
// # Access to regions
//
// The target checks a region's 128-bit secret when the initiator requests a grant (package grant).
// The grant has the NIC's keys. They have 32 bits, and hold for every queue pair of the protection
// domain. The initiator's provider checks each op against the grant, so that no wrong access
// reaches the wire; if one does, it ends the connection. MR.Close first revokes the grants, then
// takes the memory from the NIC. A peer that does not return a grant within 5 s is disconnected,
// and its queue pairs are destroyed before the memory is released.
//
// A NIC reaches memory of a GPU as peer memory or by dma-buf (gpu.go), never inline. If neither
// works, TCP carries those ops through pinned host memory; Path and the log say why.
//
// # Receives
//
// Each queue pair has receives of its own; none shares them (SRQ). Those for remote data have 24
// bytes: 3 KiB for 128 of them, 24 KiB for the 1024 that mori.io asks for. The queue pair for
// messages has 32 of 8 KiB: 256 KiB for each peer, 16 MiB for the 64 hosts of a large job.
//
// Sharing receives would save some of that memory and lose the credits. With its own receives, a
// peer that sends too much is detected and ends only its own connection. A peer that this side does
// not read takes no receives of others. No NIC ever meets a receiver that is not ready, to which it
// would answer with a wait of 0.64 ms.
//
// # Regions
//
// A region is registered with a NIC when the first op needs it, once for all connections, and in
// pieces if the device limits the length.
//
// # Errors of ops
//
//	ErrNoKey, ErrAccess, ErrRange   as everywhere
//	EFAULT                          local memory is not mapped, or may not be written
//	ErrConnReset                    the peer or the path to it is gone (retries exceeded), or the
//	                                queue pair or the device failed
//
// The text has the status of verbs and the vendor's syndrome. Each of these errors of a device ends
// the connection; package io can replay the unfinished ops on another path.
//
// # Tested
//
// Tested on soft-RoCE (rdma_rxe) in a virtual machine and on an emulated libibverbs
// (native/verbs/verbstest); not yet on a hardware NIC. GPUs were tested with emulated GPUs and NICs
// only.
package verbs
