// SPDX-License-Identifier: MIT

// Package stream is the protocol of connected endpoints (fabric.EPMsg) over stream sockets: TCP with several
// connections per endpoint, or one unix socket. Its EPRDM endpoints are layer/rdm's, with these as carriers.
//
// A provider describes its sockets by a Transport and gets a whole fabric.Fabric from New: domains, listeners,
// endpoints. A Direct lets it move the payload of reads, writes and messages by a way of its own, with everything else (states,
// fences, atomics, receives, completions, shutdown) staying here.
//
// # On the wire
//
// Each socket begins with a hello, and link 0 with an answer to it (hello.go). Frames follow (frame.go), one per op, whatever its
// length:
//
//	write          header, table of segments, payload      answered by an ack
//	read           header, table                           answered by a reply with the payload, or an errno
//	atomic         header, operand, comparison             answered by an ack, or by a reply with what was there
//	send           header, payload up to 256 KiB           answered by an ack: at once, or when it is placed
//	offer          header of a larger message              answered by a pull once its receive is posted, then body, then ack
//
// The payload of writes and replies may come packed with zstd, to a peer whose hello or answer said that it can unpack it (pack.go).
//
// Everything that a peer sends is checked before it is believed: a frame that the protocol does not allow ends the connection, with one line
// in the log; a claim to a region that does not hold is answered by its errno, and the connection lives on. Memory that a peer can
// make this side hold is bounded: a table of 64 Ki segments, 64 reads and atomics with an answer per link, 8 MiB of packed
// payload and its bytes per link, 1 MiB of early messages per endpoint; the buffers for device memory are those of all peers.
//
// A Direct may give a connection a Wire, a way for short frames that is no socket: messages and atomic ops go there from then on (wire.go).
//
// What holds of order: messages, which are all on link 0, or on the wire behind those, arrive as they were sent. Reads, writes and atomics go where the least is
// queued, and overtake each other and messages.
//
// # Device memory
//
// Regions and local segments may be memory of a GPU where the domain was asked for fabric.CapHMEM or the provider says so. Reads and writes then go
// in pieces of up to 1 MiB through pinned buffers, copied out, sent and copied in at the same time, piece after piece (stage.go). A peer with such
// regions says so in its hello or answer (canDevice), and long reads and writes to it are cut whatever memory they have here: a frame for device
// memory that does not fit a buffer is answered by ErrMsgSize. Messages, injected writes and atomics do not take device memory: ErrNotSupported.
//
// Buffers are the device's (device.Staging): at most 64 MiB, none while nobody uses them. Buffers on their way out wait for the peer, so they
// have half of those; the others wait for the device alone. So whatever peers do, what arrives finds a buffer in the end.
//
// A piece is 1 MiB: a copy over PCIe takes 20 µs for that and 10 µs to begin and to be seen, one of 64 KiB 1 µs and the same 10. A socket
// takes 100 to 500 µs for it, so three or four pieces on each link keep all three stages at work.
//
// # Who runs what
//
// Each link has a reader and a writer goroutine, both parked while the link is idle. An endpoint that moved device memory has a stager beside
// them, which alone talks to devices, and parks, too. Submit sends small frames itself, without waiting;
// what does not fit the socket at once is the writer's. The goroutine of link 0 lends its part to programs that call CQ.Read
// over and over (poll.go). A reader never waits for the write side of a socket, so two ends that
// both send at full speed cannot block each other; it does stop when the program leaves its OpRemoteWrite completions unread, and so does the
// peer in the end.
//
// # Errors
//
// An op's error entry has the target's errno (ErrNoKey, ErrAccess, ErrRange) or the cause of the connection's end: ErrCanceled (Close),
// ErrConnAborted (Shutdown here), ErrShutdown (there), ErrConnReset, ErrProtocol, ErrCRC, ErrTimeout. Its Detail names the peer.
package stream
