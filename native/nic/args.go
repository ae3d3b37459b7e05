// SPDX-License-Identifier: MIT

package nic

import (
	"time"

	"mori/native/abi"
)

// Args are the arguments of a kernel.
type Args interface {
	// Kernel returns the name of the function.
	Kernel() string
	// Append appends the single argument, as the kernel reads it.
	Append(b []byte) []byte
}

// Interchange fills memory with a value, writes it to the peer's memory and waits for the
// completion, Rounds times. The blocks of the grid split the bytes, each at most 1 GiB.
type Interchange struct {
	Queue   uint64 // address of the view
	Outcome uint64 // address; Run has its own
	Limit   time.Duration
	Mine    abi.NICMemory
	Peer    abi.NICMemory
	Bytes   uint64
	Rounds  uint64
	Value   uint8 // in the last round; one less in the round before, and so on
	Rank    uint32
}

// Verify counts the bytes that differ from the value.
type Verify struct {
	Memory  uint64 // address
	Outcome uint64
	Bytes   uint64
	Value   uint8
}

// PingPong is one of two sides, one block each, that exchange a payload and a flag. The 8-byte
// flags at the offset Flag of Mine and Inbox start at 0.
type PingPong struct {
	Queue   uint64
	Outcome uint64
	Limit   time.Duration
	Mine    abi.NICMemory // what is sent
	Inbox   abi.NICMemory // where the peer's arrives
	Peer    abi.NICMemory // the peer's inbox
	Flag    uint64
	Bytes   uint64 // of the payload
	Rounds  uint64
	Begins  bool // true on one of the sides
	Atomic  bool // atomic add to the flag, so that it follows its payload on every network; else a plain write
}

// Post posts a list of work, split over the grid, and waits for all of it.
type Post struct {
	Queue   uint64
	Outcome uint64
	Limit   time.Duration
	Work    uint64 // address of Count abi.NICWork
	Count   uint64
	Posters abi.NICPosters
	Window  uint32 // most pending pieces of a poster; 0: as many as the ring has room for
}

func (Interchange) Kernel() string { return "mori_nic_interchange" }
func (Verify) Kernel() string      { return "mori_nic_verify" }
func (PingPong) Kernel() string    { return "mori_nic_ping_pong" }
func (Post) Kernel() string        { return "mori_nic_post" }

func (a Interchange) Append(b []byte) []byte {
	return append(b, abi.Bytes(&abi.NICInterchangeArgs{
		Queue: a.Queue, Outcome: a.Outcome, Limit: limit(a.Limit), Mine: a.Mine, Peer: a.Peer, Bytes: a.Bytes,
		Rounds: a.Rounds, Value: uint32(a.Value), Rank: a.Rank,
	})...)
}

func (a Verify) Append(b []byte) []byte {
	return append(b, abi.Bytes(&abi.NICVerifyArgs{
		Memory: a.Memory, Outcome: a.Outcome, Bytes: a.Bytes, Value: uint64(a.Value),
	})...)
}

func (a PingPong) Append(b []byte) []byte {
	return append(b, abi.Bytes(&abi.NICPingPongArgs{
		Queue: a.Queue, Outcome: a.Outcome, Limit: limit(a.Limit), Mine: a.Mine, Inbox: a.Inbox, Peer: a.Peer,
		Flag: a.Flag, Bytes: a.Bytes, Rounds: a.Rounds, Begins: one(a.Begins), Atomic: one(a.Atomic),
	})...)
}

func (a Post) Append(b []byte) []byte {
	return append(b, abi.Bytes(&abi.NICPostArgs{
		Queue: a.Queue, Outcome: a.Outcome, Limit: limit(a.Limit), Work: a.Work, Count: a.Count, Posters: a.Posters,
		Window: a.Window,
	})...)
}

func limit(d time.Duration) uint64 { return uint64(max(d, 0)) }

func one(yes bool) uint32 {
	if yes {
		return 1
	}
	return 0
}
