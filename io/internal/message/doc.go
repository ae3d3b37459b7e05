// SPDX-License-Identifier: MIT

// Package message is the codec of the control plane. It does no I/O except Read and Write of one
// message, and does not depend on an engine.
//
// # Messages
//
// A message is one byte of type, four bytes of length and four bytes of crc32c in network order,
// and a msgpack array. A client sends a Hello first, then any number of other requests, one at a
// time. Each gets one answer, of its own type or a Failure.
//
// # The handshake
//
//	client                                     server
//	Hello: its identity, the peer, a nonce  ─▶
//	                                        ◀─ Challenge: a nonce, a public key, proof
//	Proof: proof, signature                 ─▶
//	                                        ◀─ Welcome: a token, transports, proof, signature
//
// A signature shows that its sender holds the private key of the engine that it names. The public
// key is in that engine's descriptor. A proof shows that its sender has the shared secret
// (MORI_AUTH_SECRET), if one is set.
//
//   - Both cover the role of their sender and every field of the messages before them. Those of the
//     Welcome cover all of the Welcome.
//   - Nonces are fresh, so a recorded handshake cannot be replayed.
//   - Roles differ, so neither side's proof serves as the other's.
//   - A data connection sends a Ticket: its token, and a signature over the token and the
//     transport.
//
// The package encrypts nothing; TLS does.
package message
