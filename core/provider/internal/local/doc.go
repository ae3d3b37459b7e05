// SPDX-License-Identifier: MIT

// Package local has what transports between processes of one host share in addition to package
// conn:
//
//	Sockets                      abstract unix sockets
//	Peer                         what the kernel knows about the process at the other end
//	SendMemory, ReceiveMemory    memory that both ends map, starting at their handshake
//	Fence                        in such memory: blocks a peer whose connection has ended
//	Gate                         counts its users, and reports when the last one has left
//
// Nothing here starts a goroutine. A Peer holds a descriptor until its Close.
package local
