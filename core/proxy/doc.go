// SPDX-License-Identifier: MIT

// Package proxy posts network operations for GPUs. Kernels write 16-byte commands into a ring in
// host memory, and a host thread executes them over any provider of core/fabric. The kernels' side
// is native/include/mori/proxy/device.hpp.
//
//	port, err := proxy.Open(ctx, registry, hints) // an endpoint for reliable datagrams
//	region, err := port.Register(buffer)          // region.Raw travels to the peers
//	peer, err := port.Reach(name, regions)        // theirs, as they describe them
//	queue, err := proxy.New(proxy.Config{Port: port, Peers: []proxy.Peer{peer},
//		Local: []proxy.Local{...}, Memory: proxy.OnGPU(d)})
//	... launch a kernel with queue.Device() ...
//	err = errors.Join(port.Close(), queue.Close())
//
// # Parts
//
// A [Port] owns the endpoint, its completion queue and the registrations. A [Queue] is the public
// API of one worker, the thread. The worker owns a ring (the next command to read, the pending
// ones), a builder (which turns commands into ops) and the requests to the atomic servers of peers.
// An executor runs the atomics that peers request.
//
// # Ownership
//
// One queue uses a port. Close the port first, which ends all pending commands. Then close the
// queue, once no kernel uses it. If the queue is closed first, it stops kernels (kStopped) and
// waits for pending commands for a bounded time.
//
// # The ring
//
// A slot has two words. The top bit of each is the parity of the lap: if both have the parity of
// the reader's lap, the command is complete, without an atomic store of 16 bytes. GPU threads
// reserve slots by one atomic add on a word in GPU memory. Arguments that do not fit are in a
// second table, written before the command. A slot is free when its command and all earlier ones
// have completed. One word of the board has the number of completed commands, whether any PE has an
// error, and whether the queue is closed: a GPU gets all of it with one read over the bus, about a
// microsecond.
//
// # Order
//
// Commands to one PE are submitted in ring order. Puts are not ordered among each other. A signal
// comes after its payload and after all earlier puts to its PE. A fence makes the next command to
// its PE wait for earlier ones. Different PEs, and different queues, are not ordered.
//
// # Atomics on the memory of GPUs
//
// A network cannot execute them there. A queue with an [AtomicServer] sends the PE a request: a
// write into host memory that notifies the PE's queue (fabric.OpRemoteData). Config.Atomics
// executes it there, for example by a kernel launch. The reply returns the same way and completes
// the command. A command behind a fence waits for replies, and the request of a signal waits for
// its payload. Without atomic servers such atomics are refused. A signal that sets a word is a
// write, and works.
//
// # Errors
//
// Commands from a GPU are not trusted: the builder checks kinds, PEs, regions and ranges, and an
// invalid command accesses no memory. After an error, the PE accepts no more commands of this
// queue, like the queue pair of a NIC. Its status has the reason (an errno of core/fabric), and
// later commands to it end at once. Other PEs are not affected. Reset enables the PE again.
//
// # Waiting
//
// The thread polls for Config.Spin after the last command. Then it sleeps between polls, from 50 µs
// up to Config.Nap, because a GPU can only write memory and cannot wake a thread. A completion ends
// a sleep at once. An idle queue uses 2.6 % of a core (AMD EPYC, sleeps of up to 1 ms). Its first
// command after a pause waits for up to one sleep.
package proxy
