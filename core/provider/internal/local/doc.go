// SPDX-License-Identifier: MIT

// Package local is what transports between processes of one host share beside package conn:
// abstract unix sockets (Sockets), what the kernel knows of the process at the other end (Peer),
// memory that both ends map from their handshake on (Send, Receive), the fence in such memory that
// keeps a peer out when its connection is gone (Fence), and the gate that counts who is inside
// (Gate).
//
// Nothing here starts a goroutine. A Peer holds a descriptor until its Close.
package local
