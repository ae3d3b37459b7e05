// SPDX-License-Identifier: MIT

// Package stream is the protocol of connected endpoints (fabric.EPMsg) over stream sockets: TCP
// with several connections per endpoint, or one unix socket. Its EPRDM endpoints are layer/rdm's,
// with these as carriers.
//
// A provider describes its sockets by a Transport and gets a whole fabric.Fabric from New: domains,
// listeners, endpoints. A Direct lets it move the payload of reads, writes and messages by a way of
// its own, with everything else (states, fences, atomics, receives, completions, shutdown) staying
// here.
//
// # On the wire
//
// The codec is package frame: each socket begins with a handshake, and one frame follows for each
// op. The payload of writes and replies may come compressed with zstd, to a peer whose handshake
// said that it can decompress it (pack.go).
//
// Everything that a peer sends is checked before it is used. A frame that the protocol does not
// allow ends the connection, with one line in the log. A claim to a region that does not hold is
// answered by its errno, and the connection lives on. Memory that a peer can make this side hold is
// bounded:
//
//   - a table of 64 Ki segments, and 64 pending reads and atomics, for each link
//   - 8 MiB of compressed payload and its bytes for each link
//   - 1 MiB of early messages for each endpoint
//   - the buffers for device memory, which all peers share
//
// A Direct may give a connection a Wire, a way for short frames that is no socket: messages and
// atomic ops go there from then on (wire.go).
//
// Messages arrive in the order in which they were sent: all are on link 0, or on the wire behind
// those. Reads, writes and atomics go where the least is queued. They overtake each other and
// messages.
//
// # Device memory
//
// Regions and local segments may be memory of a GPU if the domain was asked for fabric.CapHMEM or
// the provider says so. Package staging cuts such reads and writes into pieces; staged.go connects
// it. A peer with such regions says so in its handshake, and long reads and writes to it go in
// pieces whatever memory they have here. Messages, injected writes and atomics do not take device
// memory: ErrNotSupported.
//
// # Who runs what
//
// Each link has a reader and a writer goroutine, both parked while the link is idle. An endpoint
// that moved device memory has a stager beside them, which alone talks to devices, and parks, too.
// Submit sends small frames itself, without waiting; what does not fit the socket at once is the
// writer's. The goroutine of link 0 lends its part to programs that call CQ.Read over and over
// (poll.go). A reader never waits for the write side of a socket, so two ends that both send at
// full speed cannot block each other; it does stop when the program leaves its OpRemoteWrite
// completions unread, and so does the peer in the end.
//
// # Errors
//
// An op's error entry has the target's errno (ErrNoKey, ErrAccess, ErrRange) or the cause of the
// connection's end: ErrCanceled (Close), ErrConnAborted (Shutdown here), ErrShutdown (there),
// ErrConnReset, ErrProtocol, ErrCRC, ErrTimeout. Its Detail names the peer.
package stream
