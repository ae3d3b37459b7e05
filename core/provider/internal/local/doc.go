// SPDX-License-Identifier: MIT

// Package local is what transports between processes of one host share beside package conn:
//
//	Sockets                      abstract unix sockets
//	Peer                         what the kernel knows of the process at the other end
//	SendMemory, ReceiveMemory    memory that both ends map from their handshake on
//	Fence                        in such memory, keeps a peer out when its connection is gone
//	Gate                         counts its users, and reports when the last one has left
//
// Nothing here starts a goroutine. A Peer holds a descriptor until its Close.
package local
