// SPDX-License-Identifier: MIT

// Package tcp is the provider for every network: connected endpoints and reliable datagrams over
// TCP, in pure Go except for zstd.
//
//	p := tcp.New(tcp.Options{})
//	infos, err := p.GetInfo(ctx, "10.0.0.7", "4791", hints)
//	f, err := p.Open(ctx, infos[0])
//
// Addresses are "host:port", with IPv6 hosts in brackets. Listening without an Info.Src takes a
// free port of the loopback interface, so nothing is open to the network unless the program names
// an interface.
//
// A datagram endpoint (EPRDM) listens at its own Info.Src. The rules for connections below apply to
// each of its peers.
//
// An endpoint uses Options.Links TCP connections. Messages stay in order on the first one; each
// read and write uses the connection with the fewest bytes queued. The payload of a write moves
// from the caller's memory to the socket, and from the socket into the target's registered memory.
// Only the kernel copies it in between. A program that calls CQ.Read repeatedly reads messages from
// the socket itself, which takes a tenth of the time of waking goroutines. Package conn defines the
// frames, the handshake, the credits and the order in which a connection ends.
//
// With fabric.CapHMEM, a program may register GPU memory, and read and write it from and to every
// peer. The bytes go through pinned host memory; copying and sending overlap.
//
// With Options.Compress, the writer of a connection compresses payload with zstd if that saves time
// at the rate that the kernel has measured. If the payload shrinks to a third, a transfer takes 0.3
// of the time over 100 Mbit/s, and 0.6 over 1 Gbit/s. Loopback traffic is not compressed.
// Compression costs a copy on each side. Every peer decompresses, whatever its own option. Under
// TLS, the lengths of compressed payload reveal something about its content.
//
// A region can be accessed only with its key, which the target checks. Without TLS, the bytes are
// not encrypted: an attacker who can read or change the network's packets can read keys and data.
//
// # Errors
//
//	ErrConnRefused  no listener at the address
//	ErrConnReset    the peer vanished: reported immediately for a closed socket, and after
//	                Options.UserTimeout for a dead host
//	ErrShutdown     the peer closed in good order
package tcp
