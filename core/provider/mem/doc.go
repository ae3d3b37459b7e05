// SPDX-License-Identifier: MIT

// Package mem is the provider whose network is this process: complete, without hardware, and the
// model of a provider.
//
//	p := mem.New(mem.Options{})
//	infos, err := p.GetInfo(ctx, "", "", nil)
//	f, err := p.Open(ctx, infos[0])
//
// Listeners are found by name among those of the same Provider; two Providers do not see each
// other. An empty Info.Src gets a fresh name.
//
// # How bytes move
//
// Submit puts ops into the endpoint's queue. One goroutine per connected endpoint, parked when
// there is nothing, takes them in order: it checks keys, rights and bounds in the peer's region
// table, moves bytes with one copy straight between the two buffers, and completes. So everything
// arrives in order. A send to a peer who posts no receive waits in memory of bounded size there,
// and then here, with all that is behind it. One with OpDeliveryComplete lets the others pass while
// it waits there, and ends when its message is in a receive; a fence waits for it. Atomics are the
// processor's, or under locks of this process: see atomics.Execute.
//
// # Datagrams
//
// An endpoint of type EPRDM is core/fabric/layer/rdm's over the connected endpoints of its domain,
// and listens at its name.
//
// # How a connection ends
//
// Both endpoints share a link. The side that ends it closes the link's channel; both goroutines
// then leave the other side's memory first, and after that end their own ops, also those that wait
// for a receive, and notify their event queue. Shutdown gives ErrShutdown to the peer, Close
// without it ErrConnReset, since a process that dies closes as well.
//
// Options.Fault lets tests break connections at chosen ops.
package mem
