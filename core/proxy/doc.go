// SPDX-License-Identifier: MIT

// Package proxy does network work for GPUs: kernels post commands of 16 bytes into a ring in host
// memory, and a thread of the host executes them over any provider of core/fabric. The kernels'
// side is native/include/mori/proxy/device.hpp.
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
// face of one worker, the thread. The worker owns a ring (what to read next, which commands have
// not ended), a builder (commands become ops) and the requests to the atomic servers of peers. An
// executor runs the atomics that peers request.
//
// # Ownership
//
// One queue uses a port. Close the port first: that ends all pending commands. Then close the
// queue, once no kernel that uses it runs. A queue that is closed first stops kernels (kStopped)
// and waits for pending commands for a bounded time.
//
// # The ring
//
// A slot is two words. The top bit of each has the parity of the lap: a reader that finds the
// parity of its lap in both has a whole command, without an atomic store of 16 bytes. GPU threads
// reserve slots by one atomic add on a word in their own memory. Arguments beyond 16 bytes are in a
// second table of as many slots, written before the command. A slot is free again when its command
// and all before it have ended. One word of the board says how many have, whether any PE has an
// error, and whether the queue is closed: one read over the bus, about a microsecond, gives a GPU
// all of it.
//
// # Order
//
// Commands to one PE are submitted in the order of the ring. Puts are not ordered among each other.
// A signal comes after its payload and after all earlier puts to its PE. A fence makes the next
// command to its PE wait for those before. Nothing orders two PEs, or two queues.
//
// # Atomics on the memory of GPUs
//
// No network can execute them there. A queue with an [AtomicServer] sends the PE a request, by a
// write into host memory that notifies the PE's queue (fabric.OpRemoteData), and Config.Atomics
// executes it there: by the launch of a kernel, say. The reply comes back in the same way and ends
// the command. A command behind a fence waits for replies, and the request of a signal waits for
// its payload. Without atomic servers such atomics are refused. A signal that sets a word is a
// write, and works.
//
// # Errors
//
// What a GPU posts is not trusted: the builder checks kinds, PEs, regions and ranges, and a command
// that fails the check touches nothing. An error of a command makes its PE take no more commands of
// this queue, as the queue pair of a NIC does: the PE's status has the reason (an errno of
// core/fabric), and later commands to it end at once. Other PEs are not affected. Reset lets the PE
// take commands again.
//
// # Waiting
//
// The thread polls for Config.Spin after the last command and then sleeps between two looks, from
// 50 µs up to Config.Nap: a GPU can wake nobody, it only writes memory. A completion ends a sleep
// at once. An idle queue takes little of a core (2.6 % of an EPYC's, with sleeps of up to 1 ms),
// and its first command after a pause waits for up to one sleep.
package proxy
