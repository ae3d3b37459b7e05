// SPDX-License-Identifier: MIT

// Package conn implements connected endpoints (fabric.EPMsg): states, pending ops, fences, credits,
// atomics, receives, completions and shutdown. layer/rdm builds EPRDM endpoints from them, using
// these endpoints as carriers. A provider describes its sockets by a handshake.Transport and gets a
// whole fabric.Fabric from New.
//
// # Below and above
//
//	frame      the codec of the wire format
//	handshake  dials and accepts the sockets of a connection
//	socket     sends and receives frames over them; does not know endpoints
//	staging    device memory through pinned buffers; port.go connects it
//	DataPath   a provider's own data path for the payload of reads, writes and messages
//
// An Endpoint has parts that own their state:
//
//	outbound   our ops from Submit to their completion: fences, credits and frames
//	channel    one for each stream: writes, replies and messages execute what the peer sends,
//	           answers takes its answers to our ops
//	inbox      the receiving side of messages, which the channels share
//	shutdown   how the connection ends, in which order
//	Port       what a DataPath may call
//
// # On the wire
//
// Each socket begins with a handshake. One frame follows for each op; see package frame. A sender
// may compress the payload of writes and replies if the peer's handshake says that it can
// decompress.
//
// Everything that a peer sends is checked before it is used. A frame that breaks the protocol ends
// the connection and writes one line to the log. A request with an invalid key, right or range is
// answered with an errno, and the connection stays open. The memory that a peer can make this side
// allocate is bounded:
//
//   - a table of 64 Ki segments, and 64 pending reads and atomics, for each socket
//   - 8 MiB of compressed payload, with its decompressed bytes, for each socket
//   - 1 MiB of early messages for each endpoint
//   - the buffers for device memory, which all peers share
//
// A DataPath may give a connection a Wire, a path for short frames that is not a socket. From then
// on, messages and atomic ops use the wire (wire.go).
//
// Messages arrive in the order in which they were sent: they all use socket 0 or, after those, the
// wire. Each read, write and atomic goes to the socket with the fewest bytes queued. These ops may
// overtake each other and messages.
//
// # Device memory
//
// Regions and local segments may be GPU memory if the domain was opened with fabric.CapHMEM or the
// provider always supports it. Package staging cuts such reads and writes into pieces; port.go
// connects it. A peer with such regions says so in its handshake. Long reads and writes to it are
// then cut into pieces, even if the local memory is host memory. Messages, injected writes and
// atomics do not support device memory and return ErrNotSupported.
//
// # Goroutines
//
// Each stream has a reader and a writer goroutine, both parked while it is idle; see package
// socket. An endpoint that has moved device memory also has a stager goroutine. Submit sends small
// frames itself and does not block. A reader stops if the program does not read its OpRemoteWrite
// completions. In the end this blocks the peer, too.
//
// # Errors
//
// An op's error entry has the target's errno (ErrNoKey, ErrAccess, ErrRange) or the cause of the
// connection's end: ErrCanceled (Close), ErrConnAborted (Shutdown on this side), ErrShutdown
// (Shutdown by the peer), ErrConnReset, ErrProtocol, ErrCRC, ErrTimeout. Its Detail names the peer.
package conn
