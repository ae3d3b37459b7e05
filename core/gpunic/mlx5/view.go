// SPDX-License-Identifier: MIT

package mlx5

import "encoding/binary"

// A QueueView is what code on a GPU, or a CPU build of it, needs to drive a queue by itself: struct
// mori_nic_queue of native/include/mori/nic/queue.hpp, little-endian, 128 bytes, aligned to 64. The
// host writes it once; from then on the second half belongs to the device.
//
// The halves are one cache line each: constants, which every thread reads and keeps, and counters,
// which many change. Counters count from 0 for the life of the queue and never wrap; the low 16
// bits of a count of blocks are the index that the NIC knows.
type QueueView struct {
	SQ       uint64 // address of the ring of 64-byte blocks, 1<<SQLog of them
	DBR      uint64 // doorbell record: two big-endian words of 4 bytes, [0] receive, [1] send counter
	CQ       uint64 // address of the ring of 64-byte entries, 1<<CQLog of them
	CQDBR    uint64 // doorbell record of the completion queue: [0] big-endian consumer counter, 24 bits
	UAR      uint64 // the 8-byte register that is the doorbell
	SQLog    uint32
	CQLog    uint32
	QPN      uint32
	Provider uint32 // ProviderMLX5, ...
	Flags    uint32 // FlagCollapsed, ...
	MTU      uint32 // bytes of payload in a packet

	Reserved  uint64 // blocks that posters have taken
	Published uint64 // blocks whose entries are whole, and so are all before: the next doorbell has them
	Completed uint64 // blocks whose work is done: Reserved may run 1<<SQLog ahead of it and no further
	Status    uint64 // 0, or vendor syndrome<<8 | syndrome of the first error, or what native/nic.StatusErr knows
	Kept      uint64 // address of 1<<SQLog little-endian uint32: blocks (bnxt: packets) of the entry there
	Polled    uint64 // completion entries read; its low 24 bits go to CQDBR
	PollLock  uint64 // 0 or 1: one thread at a time reads completions
	Bells     uint64 // posters since the one that rings the doorbell began to; 0 if none rings
}

// An AnnexView lies behind the QueueView of a bnxt or ionic NIC: struct Annex of the same header.
// Their queues differ from what QueueView says: blocks of bnxt have 128 bytes, completion entries
// of both 32, there is no doorbell record, and CQDBR is the address of the register that takes the
// doorbell of the completion queue.
type AnnexView struct {
	MSN     uint64 // bnxt: address of the table of packets, 1<<SQLog words of 8 bytes, right behind the ring
	CQN     uint32 // number of the completion queue
	Spare   uint32 // blocks of the ring that are never in use, 1 at least
	Version uint32 // ionic: of its formats, 1 or 2
	_       [44]byte
	PSN     uint64 // bnxt: number of the next entry's first packet
	_       [56]byte
}

// QueueViewBytes, AnnexViewBytes and MemoryViewBytes are the sizes on the device.
const (
	QueueViewBytes  = 128
	AnnexViewBytes  = 128
	MemoryViewBytes = 24
)

// Families of NICs. Their numbers are the template arguments of the device code.
const (
	ProviderMLX5  = 1
	ProviderBnxt  = 2
	ProviderIonic = 3
)

// Flags of a QueueView.
const (
	// FlagCollapsed says that the completion queue has one entry that each completion overwrites
	// (cc=1, oi=1): its owner bit means nothing, its work counter begins as 0xffff, and the count of
	// completed blocks is made from that counter and Kept.
	FlagCollapsed = 1 << 0
	// FlagNoDBR says that the NIC takes the producer index from the doorbell and not from the record.
	// The record may be written still.
	FlagNoDBR = 1 << 1
	// FlagEmulated says that the doorbell is a word of memory that a thread reads, and no register.
	FlagEmulated = 1 << 2
)

// Put writes the view as the device reads it; b has QueueViewBytes.
func (v *QueueView) Put(b []byte) { encode(b[:QueueViewBytes], v) }

// Parse reads what Put, or the device, wrote.
func (v *QueueView) Parse(b []byte) { decode(b[:QueueViewBytes], v) }

// Put writes the annex as the device reads it; b has AnnexViewBytes.
func (v *AnnexView) Put(b []byte) { encode(b[:AnnexViewBytes], v) }

// A MemoryView is registered memory as the device names it: struct mori_nic_memory.
type MemoryView struct {
	Addr, Bytes uint64
	LKey, RKey  uint32
}

// Put writes the view as the device reads it; b has MemoryViewBytes.
func (v *MemoryView) Put(b []byte) { encode(b[:MemoryViewBytes], v) }

// Parse reads what Put wrote.
func (v *MemoryView) Parse(b []byte) { decode(b[:MemoryViewBytes], v) }

func encode(b []byte, v any) {
	if _, err := binary.Encode(b, binary.LittleEndian, v); err != nil {
		panic(err) // all fields have a fixed size, and b has room for them: TestViewLayout
	}
}

func decode(b []byte, v any) {
	if _, err := binary.Decode(b, binary.LittleEndian, v); err != nil {
		panic(err)
	}
}
