// SPDX-License-Identifier: MIT

package nic

import "encoding/binary"

// Kind says what a piece of work does: enum Kind of native/include/mori/nic/work.hpp.
type Kind uint32

// Atomic operations leave what was there at Local. Masked ones have 4 or 8 bytes.
const (
	Nop Kind = iota
	Write
	WriteInline // Local is the address of up to 92 bytes (bnxt 96, ionic 32), which need not be registered
	WriteValue  // the low 1 to 8 bytes of Value
	Read
	Send
	FetchAdd
	CompareSwap       // Value goes where Compare is
	MaskedFetchAdd    // no carry goes past a bit of ValueMask
	MaskedCompareSwap // bits of CompareMask are compared, those of ValueMask are swapped
)

// Flags of a piece of work.
const (
	Silent    = 1 << iota // no completion of its own: a later one covers it
	Fenced                // it begins when the reads and atomic operations before it are done
	Solicited             // the peer's completion raises an event
	Immediate             // Write and Send: the immediate value comes with the peer's completion
)

// Work is a piece of a list for Post.
type Work struct {
	Kind        Kind
	Flags       uint32
	Remote      uint64
	Local       uint64
	Bytes       uint64
	RKey        uint32
	LKey        uint32
	Value       uint64
	Compare     uint64
	ValueMask   uint64
	CompareMask uint64
	Immediate   uint32
	_           uint32
}

// WorkBytes is the size of a piece in a list.
const WorkBytes = 80

// Append appends the piece as the kernel reads it.
func (w *Work) Append(b []byte) []byte { return appendAll(b, w) }

// WaitReport is what a wait that gave up was about: struct WaitReport of
// native/include/mori/device/report.hpp.
type WaitReport struct {
	Address, Expected, Seen  uint64
	Rank, Peer, Count, Ready uint32
}

// An Outcome is what a kernel reports: sums over all its blocks.
type Outcome struct {
	Status      uint64 // the first that was not StatusOK
	Done        uint64 // rounds, or pieces of work
	Wrong       uint64 // bytes that are not what they should be
	Nanoseconds uint64 // of the block that took longest
	Report      WaitReport
}

// OutcomeBytes is the size of an Outcome in memory.
const OutcomeBytes = 72

// ParseOutcome reads an outcome of OutcomeBytes.
func ParseOutcome(b []byte) (o Outcome) {
	if _, err := binary.Decode(b[:OutcomeBytes], binary.LittleEndian, &o); err != nil {
		panic(err) // its size is fixed
	}
	return o
}
