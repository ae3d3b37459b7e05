// SPDX-License-Identifier: MIT

// Package conn has connected endpoints (fabric.EPMsg): states, pending ops, fences, credits,
// atomics, receives, completions and shutdown. Its EPRDM endpoints are layer/rdm's, with these as
// carriers. A provider describes its sockets by a handshake.Transport and gets a whole
// fabric.Fabric from New.
//
// # Below and above
//
//	frame      the codec of what is on the wire
//	handshake  dials and accepts the sockets of a connection
//	socket     sends and receives frames over them, and knows no endpoint
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
// Each socket begins with a handshake, and one frame follows for each op; see package frame. The
// payload of writes and replies may come compressed, to a peer whose handshake said that it can
// decompress it.
//
// Everything that a peer sends is checked before it is used. A frame that the protocol does not
// allow ends the connection, with one line in the log. A claim to a region that does not hold is
// answered by its errno, and the connection lives on. Memory that a peer can make this side hold is
// bounded:
//
//   - a table of 64 Ki segments, and 64 pending reads and atomics, for each socket
//   - 8 MiB of compressed payload and its bytes for each socket
//   - 1 MiB of early messages for each endpoint
//   - the buffers for device memory, which all peers share
//
// A DataPath may give a connection a Wire, a way for short frames that is no socket: messages and
// atomic ops go there from then on (wire.go).
//
// Messages arrive in the order in which they were sent: all are on socket 0, or on the wire behind
// those. Reads, writes and atomics go where the least is queued. They overtake each other and
// messages.
//
// # Device memory
//
// Regions and local segments may be memory of a GPU if the domain was asked for fabric.CapHMEM or
// the provider says so. Package staging cuts such reads and writes into pieces; port.go connects
// it. A peer with such regions says so in its handshake, and long reads and writes to it go in
// pieces whatever memory they have here. Messages, injected writes and atomics do not take device
// memory: ErrNotSupported.
//
// # Who runs what
//
// Each stream has a reader and a writer goroutine, both parked while it is idle; see package
// socket. An endpoint that moved device memory has a stager beside them. Submit sends small frames
// itself, without waiting. A reader stops when the program leaves its OpRemoteWrite completions
// unread, and so does the peer in the end.
//
// # Errors
//
// An op's error entry has the target's errno (ErrNoKey, ErrAccess, ErrRange) or the cause of the
// connection's end: ErrCanceled (Close), ErrConnAborted (Shutdown here), ErrShutdown (there),
// ErrConnReset, ErrProtocol, ErrCRC, ErrTimeout. Its Detail names the peer.
package conn
