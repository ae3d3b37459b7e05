// SPDX-License-Identifier: MIT

// Package verbs is the transport over RDMA NICs, by libibverbs: InfiniBand, RoCE and what else speaks reliable connections. The NIC
// reads and writes registered memory at both ends; no process of the target takes part.
//
//	p := verbs.New(verbs.Options{})
//	infos, err := p.GetInfo(ctx, "", "", nil)       // ErrNoData says why there is no device to use
//	fab, err := p.Open(ctx, infos[0])
//	lis, err := fab.Listen(ctx, infos[0])           // info.Src "host:port" of TCP, or empty
//	ep.Connect(ctx, lis.Addr(), nil)                // ep from fab.Domain(...).Endpoint(...)
//
// # What goes where
//
// A connection begins as one of TCP, in the protocol of package conn; addresses are TCP's. Over it the two sides agree on rails: a rail is
// a NIC at either end, with a completion queue and some queue pairs (setup.go). Handshake, shutdown and the loans of
// regions (package loan) stay on the TCP connection. Reads and writes of registered memory are the rails' (begin.go): each run of bytes that
// is whole at both ends becomes a work request, neighbours are merged, up to Settings.SendSGE local pieces share one; long ops are spread over all
// queue pairs of all rails, short ones take the next. Work requests of an op are posted with one call for each queue pair; the last one
// asks for a completion, and so does each that would leave too many without.
//
// Remote data of a write follows it on the same queue pairs, as sends with immediate data (notice.go).
//
// Messages, atomic ops, remote data without bytes, and their answers are frames of the stream still, but travel by a queue pair of their own on the first
// rail (wire.go): as sends into receives of 8 KiB, under credits, so that no receiver is ever without one. That the frames stay what they are
// gives all of them one way, with the order, the bounds and the checks that the stream has already; a queue pair of their own keeps short ones from
// standing behind long writes. They are copied once at either end, and a message takes two to three times as long as a write of as many bytes on the emulated
// devices (BenchmarkMessages): who moves much writes. Frames of before go by TCP, and the stream turns from one to the other in order.
//
// Atomic ops are executed by the CPU of the target, and so are atomic towards its own: what a NIC does to memory by itself is not, on most machines.
//
// Messages stay on TCP where TLS is set, since nothing encrypts what NICs send, and where a device has no room for the queue pair.
//
// What a NIC cannot do goes over TCP, too: device memory that the NIC cannot register, host memory that it refuses, ops of no bytes.
//
// # Local memory that is not registered
//
// An op may have local memory of no region (spare.go). Up to 256 KiB its bytes are copied from or to memory that the NIC knows, longer ops have theirs
// registered until they end. Such a write takes 0.97 to 1.0 of the speed of one from registered memory up to 256 KiB, 0.86 at 1 MiB and 0.96 at 16 MiB on
// the emulated devices, and as long as that on soft-RoCE, within its noise (BenchmarkUnregistered, medians of 500 and 100).
//
// No registration outlives its op, so none is ever stale, whatever became of the address meanwhile: TestOtherMemoryAtTheSameAddress has it unmapped, mapped
// over, emptied (MADV_DONTNEED) and forked. A cache of them by address could save the rest of those figures, and has to hear of all of that. The one way
// to hear of it without privileges is userfaultfd, which
//
//   - says nothing of files and shared memory that lose pages otherwise: after a hole was punched in a memfd no event came (Linux 6.18, tried);
//   - tells of MADV_DONTNEED before the pages go, so that what is registered in between is stale at once;
//   - has each munmap and madvise of such memory wait for whoever reads the events, those of Go's own heap among them, which are made where Go cannot
//     run whoever reads: libfabric has met such deadlocks (its issues 5554 and 5580);
//   - is not among the system calls that Docker lets a container make unless it is told to.
//
// Callers who come again to the same memory register it, and lose nothing.
//
// # Who may touch what
//
// A region's 128-bit secret is checked by the target when the initiator asks for a loan. With the loan come the keys of the NIC, which have 32 bits
// and hold for whoever has a queue pair in the same protection domain. The initiator's provider holds each op against what was lent, so that no
// wrong access reaches the wire; one that does all the same ends the connection. MR.Close calls the loans in first, then takes the memory from
// the NIC. A peer that does not give back within 5 s is disconnected, and its queue pairs are gone before the memory is.
//
// Memory of a GPU is shown to a NIC as peer memory or by dma-buf (gpu.go), and never inline. Where neither works, the stream takes its ops, by pinned
// host memory; Path and the log say why.
//
// # Receives
//
// Each queue pair has receives of its own, and no two share some (SRQ). Those for remote data are
// of 24 bytes: 3 KiB for 128 of them, 24 KiB for the 1024 that mori.io asks for. A connection has
// one queue pair whose receives are long, 32 of 8 KiB: 256 KiB for each peer, 16 MiB for the 64
// hosts of a large job. Sharing would save some of that and cost what credits give: with receives
// of its own, a peer that sends too much is found out and ends its own connection, one that is not
// read from takes no other's receives, and no NIC ever meets a receiver that is not ready, which
// it answers with a wait of 0.64 ms.
//
// # Regions
//
// A NIC is shown a region when the first op needs it, once for all connections, and in pieces where the device's limit asks for that.
//
// # Errors of ops
//
// ErrNoKey, ErrAccess, ErrRange as everywhere. EFAULT: local memory is not mapped, or may not be written. ErrConnReset: the peer or the way to it is gone (retries exceeded), the queue pair or the
// device failed, with verbs' status and the vendor's syndrome in the text. Any of them ends the connection; what was not done is for
// who can do it over another path (package io).
//
// # Where it has run
//
// On soft-RoCE (rdma_rxe) in a virtual machine, and in every test on an emulated libibverbs (native/verbs/verbstest). On no hardware yet.
// With GPUs, on emulated ones and emulated NICs only.
package verbs
