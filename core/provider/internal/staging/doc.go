// SPDX-License-Identifier: MIT

// Package staging moves device memory over a data path that reaches host memory only. The bytes go
// through pinned buffers of the device (device.Staging), a piece of up to one buffer at a time:
//
//	write   copied out (stager) -> sent -> arrives in a buffer -> copied in (stager) -> ack
//	read    request -> copied out there (stager) -> sent -> arrives in a buffer -> copied in (stager)
//
// The initiator cuts a read or write into pieces if its own memory or the peer's may be device
// memory. Each piece is an operation of its own and fits one buffer. Pieces spread over the
// sockets, so that copying out, sending and copying in overlap. The target answers an operation
// that does not fit a buffer with ErrMsgSize. Checksums and compression apply to the bytes in the
// buffers.
//
// # Parts
//
//	Stager    one for each endpoint: the goroutine that copies, and its queues
//	Transfer  a read or write of this side, and its progress
//	Piece     what moves through one buffer
//	Port      what the Stager needs of the data path under it
//	Reader, Writer   a peer's read and write
//	Devices   the buffers of a domain's devices
//
// # Waiting
//
// Only the Stager uses a device. Its goroutine starts with the first piece. It starts and polls
// copies, and parks if no copy is pending. Goroutines that use sockets never wait for a device. A
// frame that finds no free buffer waits for one. Buffers for arriving bytes are freed once they are
// copied in, whatever the network does. Outgoing buffers wait for the peer, so they are limited to
// half of the memory of device.Staging, and to PieceBytes for each endpoint.
//
// A region is held open while one of its pieces is copied, and MR.Close waits for that. The end of
// a connection also waits, for up to closeWait. Memory of copies that a device has not finished by
// then stays pinned.
//
// A piece is 1 MiB. Starting a PCIe copy and seeing its end takes 10 µs, and the copy itself 20 µs;
// with 64 KiB, 10 and 1. A socket takes 100 to 500 µs, so three or four pieces on each socket keep
// all stages busy.
package staging
