// SPDX-License-Identifier: MIT

// Package ring implements the memory that two processes map to exchange messages, their answers,
// and the remote data of writes, without system calls. It has both ends of each ring, and no
// goroutines.
//
// One producer and one consumer use a ring. Neither end is safe for concurrent use. The peer may
// write anything anywhere at any time. Both ends check what they read, and return
// fabric.ErrProtocol if it is impossible.
package ring
