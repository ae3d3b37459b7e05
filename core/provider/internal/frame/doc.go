// SPDX-License-Identifier: MIT

// Package frame is the codec of the connection protocol: it converts between bytes and values and
// does no I/O.
//
// A connection begins with a Handshake on each of its sockets and one HandshakeReply. Then one
// frame follows for each operation, whatever its length:
//
//	write    Header, table of segments, payload   answered by an ack
//	read     Header, table                        answered by a reply with the payload, or an errno
//	atomic   Header, operand, comparison          answered by an ack, or a reply with the old value
//	send     Header, payload up to MaxEager       answered by an ack: at once, or once it is placed
//	offer    Header of a larger message           answered by a pull once a receive is posted
//	pull     Header                               answered by a body, which an ack answers in turn
//
// Decoders accept any input. They return an error if a number is impossible for the kind of frame.
// They allocate no more than the protocol's bounds allow.
package frame
