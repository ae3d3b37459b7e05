// SPDX-License-Identifier: MIT

// Package mem is a provider whose network is this process. It is complete, needs no hardware, and
// is the model for other providers.
//
//	p := mem.New(mem.Options{})
//	infos, err := p.GetInfo(ctx, "", "", nil)
//	f, err := p.Open(ctx, infos[0])
//
// Listeners have names, which are visible within one Provider only. If Info.Src is empty, the
// Provider chooses a new name.
//
// # Data path
//
// Submit adds ops to the endpoint's queue. Each connected endpoint has one goroutine, parked when
// idle, which executes the ops in order. It checks keys, rights and bounds in the peer's region
// table, copies the bytes directly between the two buffers, and completes the op. So everything
// arrives in order.
//
// If the peer has posted no receive for a send, the message waits in memory of bounded size at the
// peer. If that memory is full, the send waits here, together with all ops behind it. A send with
// OpDeliveryComplete lets later ops pass while its message waits at the peer, and ends when the
// message is in a receive; a fence waits for it. Atomics use the CPU's atomics or locks of this
// process; see atomics.Execute.
//
// # Datagrams
//
// EPRDM endpoints come from core/fabric/layer/rdm, with connected endpoints of the domain as
// carriers. They listen at their name.
//
// # End of a connection
//
// Both endpoints share a link. The side that ends the connection closes the link's channel. Each
// goroutine then stops accessing the other side's memory, ends its own ops, including waiting
// sends, and notifies its event queue. After Shutdown the peer gets ErrShutdown. After Close
// without Shutdown it gets ErrConnReset, as if the process had died.
//
// Options.Fault lets tests break connections at chosen ops.
package mem
