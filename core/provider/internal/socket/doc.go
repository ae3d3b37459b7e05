// SPDX-License-Identifier: MIT

// Package socket sends and receives frames over the byte streams of a connection: TCP sockets, unix
// sockets, or a Wire, which the provider implements. It knows frames and memory, but not endpoints.
//
//	Stream    one byte stream with its two directions
//	Job       a frame to be sent
//	Incoming  a frame being received
//	Owner     what the user of a Stream does with frames
//	Poller    lets a program that polls its completion queue read the socket
//
// Each Stream has a reader and a writer goroutine, Read and Write, which its owner starts. Both
// park while the stream is idle. Kick sends small frames on the caller's goroutine as far as the
// socket accepts them; the writer sends the rest. A reader never waits for the write side of a
// socket, so two ends that both send at full speed cannot deadlock.
//
// Payload is sent from and received into the operation's memory, without a copy in user space.
// Package frame does the checksums and compression.
package socket
