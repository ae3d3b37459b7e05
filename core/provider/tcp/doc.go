// SPDX-License-Identifier: MIT

// Package tcp is the provider for every network: connected endpoints and reliable datagrams over
// TCP, in pure Go but for zstd.
//
//	p := tcp.New(tcp.Options{})
//	infos, err := p.GetInfo(ctx, "10.0.0.7", "4791", hints)
//	f, err := p.Open(ctx, infos[0])
//
// Addresses are "host:port", with IPv6 hosts in brackets. Listening without an Info.Src takes a
// free port of the loopback interface: nothing is open to the network unless somebody names an
// interface.
//
// A datagram endpoint (EPRDM) listens at its own Info.Src, and what it says of connections below
// holds for each of its peers.
//
// An endpoint is Options.Links connections. Messages stay in order on the first one; reads and
// writes go where the least is queued. The payload of a write goes from the caller's memory to the
// socket and from the socket into the target's registered memory, with no copy in between but the
// kernel's own. A program that calls CQ.Read over and over reads messages from the socket itself,
// which takes a tenth of the time that waking goroutines takes. Frames, handshake, credits and the
// order in which a connection ends are those of package conn.
//
// Who asks for fabric.CapHMEM may register memory of GPUs, and read and write it from and to every
// peer. It goes through pinned host memory, copied and sent at the same time.
//
// With Options.Compress the writer of a connection compresses payload with zstd, if that saves time
// at the rate that the kernel has measured. If a third of the bytes is left, a transfer over 100
// Mbit/s takes 0.3 of the time, and over 1 Gbit/s 0.6. Loopback is not compressed. Compression
// costs a copy on each side. Peers decompress whatever their own option says. Under TLS, the
// lengths of compressed payload reveal something about its content.
//
// A region is touched only with its key, checked at the target. The bytes themselves travel in the
// clear: who can read or change the network's packets can read keys and data.
//
// Errors: ErrConnRefused when nobody listens, ErrConnReset when the peer vanished (at once for a
// closed socket, after Options.UserTimeout for a dead host), ErrShutdown when it closed in good
// order.
package tcp
