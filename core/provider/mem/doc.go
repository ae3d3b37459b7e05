// SPDX-License-Identifier: MIT

// Package mem is the provider whose network is this process: complete, without hardware, and the model of a provider.
//
//	p := mem.New(mem.Options{})
//	infos, err := p.GetInfo(ctx, "", "", nil)
//	f, err := p.Open(ctx, infos[0])
//
// Listeners are found by name among those of the same Provider; two Providers do not see each other. An empty
// Info.Src gets a fresh name.
//
// # How bytes move
//
// Submit puts ops into the endpoint's queue. One goroutine per connected endpoint, parked when there is nothing, takes them
// in order: it checks keys, rights and bounds in the peer's region table, moves bytes with one copy straight between the two buffers,
// and completes. So everything arrives in order, and a fence costs nothing. A send to a peer who posts no receive waits in the
// peer's bounded memory, and then here, with all that is behind it.
//
// # How a connection ends
//
// Both endpoints share a link. Whoever ends it closes the link's channel; both goroutines then leave the
// other side's memory first, and after that end their own ops and tell their event queue. Shutdown gives ErrShutdown to the peer, Close
// without it ErrConnReset, since a process that dies closes as well.
//
// Options.Fault lets tests break connections at chosen ops.
package mem
