// SPDX-License-Identifier: MIT

// Package socket sends and receives frames over the byte streams of a connection: TCP or unix
// sockets, and a Wire, which a provider carries itself. It knows frames and memory, and no
// endpoint.
//
//	Stream    one byte stream with its two directions
//	Job       a frame to be sent
//	Incoming  a frame that arrives
//	Owner     what the user of a Stream does with frames
//	Poller    lets a program that polls its completion queue read the socket
//
// Each Stream has a reader and a writer goroutine, which its owner starts: Read and Write. Both
// park while the stream is idle. Kick sends small frames on the caller's goroutine as far as the
// socket takes them; the writer sends the rest. A reader never waits for the write side of a
// socket, so two ends that both send at full speed cannot block each other.
//
// Payload is sent from and received to the memory of the operation, without a copy in user space.
// Checksums and compression are those of package frame.
package socket
