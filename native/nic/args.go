// SPDX-License-Identifier: MIT

package nic

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Args are what a kernel is handed.
type Args interface {
	// Kernel is the name of the function.
	Kernel() string
	// Append appends the one argument, as the kernel reads it.
	Append(b []byte) []byte
}

// Memory is registered memory: struct Memory of native/include/mori/nic/queue.hpp.
type Memory struct {
	Addr, Bytes uint64
	LKey, RKey  uint32
}

// Interchange fills memory with a value, writes it to the peer's and waits for the completion, so
// often. The blocks of the grid share the bytes out, each at most 1 GiB.
type Interchange struct {
	Queue   uint64 // address of the view
	Outcome uint64 // address; Run has its own
	Limit   time.Duration
	Mine    Memory
	Peer    Memory
	Bytes   uint64
	Rounds  uint64
	Value   uint8 // in the last round; one less in the round before, and so on
	Rank    uint32
}

// Verify counts the bytes that are not the value.
type Verify struct {
	Memory  uint64 // address
	Outcome uint64
	Bytes   uint64
	Value   uint8
}

// PingPong is one of two sides, a block each, that hand each other a payload and a flag. Flags, of
// 8 bytes at the offset Flag of Mine and Inbox, begin as 0.
type PingPong struct {
	Queue   uint64
	Outcome uint64
	Limit   time.Duration
	Mine    Memory // what is sent
	Inbox   Memory // where the peer's arrives
	Peer    Memory // the peer's inbox
	Flag    uint64
	Bytes   uint64 // of the payload
	Rounds  uint64
	Begins  bool // true on one of the sides
	Atomic  bool // the flag is added to, so that it follows its payload on every network; else it is written
}

// Post posts a list of work, shared out over the grid, and waits for all of it.
type Post struct {
	Queue   uint64
	Outcome uint64
	Limit   time.Duration
	Work    uint64 // address of Count entries of WorkBytes, as Work.Append writes them
	Count   uint64
	Posters Posters
	Window  uint32 // pieces of a poster that are pending at most; 0: as many as the ring has room for
}

// Posters says who posts a piece of a list.
type Posters uint32

// Each thread its own, a warp together, a block together, and each lane of a warp its own with one
// doorbell for all.
const (
	Threads Posters = iota
	Warps
	Blocks
	Lanes
)

func (Interchange) Kernel() string { return "mori_nic_interchange" }
func (Verify) Kernel() string      { return "mori_nic_verify" }
func (PingPong) Kernel() string    { return "mori_nic_ping_pong" }
func (Post) Kernel() string        { return "mori_nic_post" }

func (a Interchange) Append(b []byte) []byte {
	return appendAll(b, a.Queue, a.Outcome, limit(a.Limit), a.Mine, a.Peer, a.Bytes, a.Rounds, uint32(a.Value), a.Rank)
}

func (a Verify) Append(b []byte) []byte {
	return appendAll(b, a.Memory, a.Outcome, a.Bytes, uint64(a.Value))
}

func (a PingPong) Append(b []byte) []byte {
	return appendAll(b, a.Queue, a.Outcome, limit(a.Limit), a.Mine, a.Inbox, a.Peer, a.Flag, a.Bytes, a.Rounds, one(a.Begins), one(a.Atomic))
}

func (a Post) Append(b []byte) []byte {
	return appendAll(b, a.Queue, a.Outcome, limit(a.Limit), a.Work, a.Count, uint32(a.Posters), a.Window)
}

func limit(d time.Duration) uint64 { return uint64(max(d, 0)) }

func one(yes bool) uint32 {
	if yes {
		return 1
	}
	return 0
}

// appendAll appends numbers and structs of them, little-endian, without gaps.
func appendAll(b []byte, values ...any) []byte {
	for _, v := range values {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
			panic(fmt.Sprintf("append %T: %v", v, err)) // all have a fixed size
		}
	}
	return b
}
