// SPDX-License-Identifier: MIT

// Package interchange is the GPU data interchange, step by step: a kernel on one GPU fills a
// buffer, writes it to another GPU's by a NIC that it drives itself, or by the host's proxy, and
// the other GPU looks at every byte. The program mori demo interchange, whose steps these are, runs
// it.
//
//	// and b, here or in another process
//	a, err := interchange.Open(interchange.Options{Device: "emu0", GPU: "cpu"})
//	found, err := a.Discover()
//	text, err := a.OpenDevice()
//	endA, err := a.Endpoint()
//	err = a.Connect(endB.Address)
//	memA, err := a.Register(1024)
//	err = a.SetPeer(memB.Shown)
//	go b.Run(ctx, interchange.Work{Value: 42, Rounds: 1}) // the receiver
//	sent, err := a.Run(ctx, interchange.Work{Send: true, Value: 42, Rounds: 1})
//	wrong, err := b.Verify(ctx, 42) // after both have ended
//	err = errors.Join(a.Close(), b.Close())
//
// Devices are "emu0" and its like, the emulated NIC, with a vendor's queues as "emu0:bnxt",
// "emu0:ionic1" or "emu0:ionic2"; "proxy" or "proxy:tcp", a provider of core/fabric behind a ring
// that kernels post to. GPUs are "cpu", the kernels on threads of this process, "cuda:0" and
// "hip:0". A Side is used by one goroutine at a time; steps out of order are ErrOrder. Every wait
// is bounded by Options.Limit.
package interchange
