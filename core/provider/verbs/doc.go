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
// A connection begins as one of TCP, in the protocol of package stream; addresses are TCP's. Over it the two sides agree on rails: a rail is
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
// standing behind long writes. They are copied once at either end. Frames of before go by TCP, and the stream turns from one to the other in order.
//
// Atomic ops are executed by the CPU of the target, and so are atomic towards its own: what a NIC does to memory by itself is not, on most machines.
//
// Messages stay on TCP where TLS is set, since nothing encrypts what NICs send, and where a device has no room for the queue pair.
//
// What a NIC cannot do goes over TCP, too: local memory that is not registered (unless it is short enough to be inline), device memory
// that the NIC cannot register, ops of no bytes.
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
