// SPDX-License-Identifier: MIT

// Package proxy does network work for GPUs: kernels post commands of 16 bytes into a ring in host memory, and a thread of the host carries
// them out over any provider of core/fabric. native/include/mori/proxy/device.hpp is the kernels' side.
//
//	port, err := proxy.Open(ctx, registry, hints)     // an endpoint for reliable datagrams, with what it needs
//	region, err := port.Register(buffer)              // region.Raw travels to the peers
//	peer, err := port.Reach(name, regions)            // theirs, as they told us
//	queue, err := proxy.New(proxy.Config{Port: port, Peers: []proxy.Peer{peer}, Local: []proxy.Local{...}, Memory: proxy.OnGPU(d)})
//	... launch a kernel with queue.Device() ...
//	err = errors.Join(port.Close(), queue.Close())
//
// # Who owns what
//
// A port has the endpoint, its queue of completions and the registrations; one queue uses it. Close the port first: it ends what is
// under way. Then close the queue, when no kernel that knows it runs any more. Closing the queue first tells kernels that nobody
// serves them (kStopped), and waits for what is under way for a bounded time.
//
// # The ring
//
// A slot is two words, and each has the parity of the lap in its top bit: a reader that finds the parity of its lap in both has a whole
// command, without a store of 16 bytes that is atomic. GPU threads reserve slots by one atomic add on a word in their own memory. What
// does not fit 16 bytes is in a second table of the same number of slots, written before the command. A slot is free again when its
// command and all before it have ended: the board's one word says how many have, whether any PE has an error, and whether the queue is
// closed, so that a look over the bus, about a microsecond, tells a GPU all.
//
// # Order
//
// Commands to one PE are submitted in the order of the ring. Puts among each other are not ordered, a signal comes after its payload and all
// puts to its PE before it, and a fence command makes the next one to the PE wait for those before. Nothing orders two PEs, or two queues.
//
// # Atomics on the memory of GPUs
//
// No CPU has them there. A queue with a Desk asks the PE for them, by a write into host memory of which its queue is told (fabric.OpRemoteData), and there
// Config.Atomics does them: a launch of a kernel, say. The answer comes back in the same way, and the command ends with it. What follows a fence waits for
// answers, and an ask for a signal waits for its payload. Without desks such atomics are refused; what sets a word is a write, and works.
//
// # Errors
//
// What a GPU posts is not trusted: kinds, PEs, regions and ranges are checked here, and what does not fit touches nothing. An error of a
// command to a PE makes that PE take no more from this queue, as a queue pair of a NIC does: its status says why (an errno of core/fabric),
// and whatever follows to it ends at once. Other PEs are not disturbed. Reset lets the PE begin anew.
//
// # Waiting
//
// The thread looks for commands for Config.Spin after the last one, and then naps for 50 µs up to Config.Nap between two looks: a GPU can
// wake nobody, it only writes memory. A completion ends a nap at once. So an idle queue takes little of a core (2.6 % of an EPYC's, with naps of
// up to 1 ms), and its first command after a pause waits for up to a nap.
package proxy
