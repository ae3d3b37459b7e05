// SPDX-License-Identifier: MIT

// Package ring is the memory that two processes map to exchange messages, their answers, and the
// remote data of writes, without system calls. It has both ends of each ring, and no goroutines.
//
// One producer and one consumer use a ring. They are not safe for concurrent use. The peer may
// write anything anywhere at any time: what it wrote is checked, and ends in fabric.ErrProtocol if
// it is impossible.
package ring
