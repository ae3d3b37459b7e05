// SPDX-License-Identifier: MIT

// Package staging moves device memory over a data path that reaches host memory only. The bytes go
// through pinned buffers of the device (device.Staging), a piece of up to one buffer at a time:
//
//	write   copied out (stager) -> sent -> arrives in a buffer -> copied in (stager) -> ack
//	read    request -> copied out there (stager) -> sent -> arrives in a buffer -> copied in (stager)
//
// The initiator cuts a read or write into pieces if its own memory, or the peer's, may be a
// device's. Each piece is an operation of its own: it fits one buffer, pieces spread over the
// links, and copying out, sending and copying in overlap. The target reports an operation that does
// not fit a buffer as ErrMsgSize. Checksums and compression are of the bytes in the buffers.
//
// # Parts
//
//	Stager    one for each endpoint: the goroutine that copies, and its queues
//	Transfer  a read or write of this side, and how far it is
//	Piece     what moves through one buffer
//	Port      what the data path under the Stager does for it
//	Reader, Writer   a peer's read and write
//	Devices   the buffers of a domain's devices
//
// # What waits for what
//
// Only the Stager uses a device. Its goroutine runs from the first piece on, starts copies, polls
// them, and parks if there are none. Goroutines that use sockets never wait for a device. A frame
// that finds no buffer waits until one is free. Buffers for arriving bytes become free when they
// are copied in, whatever the network does. Outgoing buffers wait for the peer, so they have half
// of the memory of device.Staging, and PieceBytes an endpoint.
//
// A region is held open while one of its pieces is copied: MR.Close waits for that. The end of a
// connection waits, too, for up to closeWait. What a device does not finish by then stays pinned.
//
// A piece is 1 MiB: to start a PCIe copy and see its end takes 10 µs, and the copy 20 µs; of 64
// KiB, 10 and 1. A socket takes 100 to 500 µs, so three or four pieces on each link keep all stages
// busy.
package staging
