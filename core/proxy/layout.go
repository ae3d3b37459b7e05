// SPDX-License-Identifier: MIT

package proxy

// The layout that GPU and host share, as native/include/mori/proxy/layout.hpp has it.

// A kind is what a command does.
type kind uint8

const (
	kindPut kind = 1 + iota
	kindGet
	kindPutSignal
	kindImmediate
	kindAtomic
	kindFetch
	kindFence

	kindEnd
)

var kindNames = [...]string{kindPut: "put", kindGet: "get", kindPutSignal: "put with signal",
	kindImmediate: "immediate put", kindAtomic: "atomic", kindFetch: "fetching atomic", kindFence: "fence"}

func (k kind) String() string {
	if k == 0 || k >= kindEnd {
		return "command?"
	}
	return kindNames[k]
}

// moves reports whether a command moves bytes between regions.
func (k kind) moves() bool { return k == kindPut || k == kindGet || k == kindPutSignal }

const (
	placeBits = 40
	peBits    = 16
	bytesBits = 23
	kindShift = placeBits + peBits
	kindMask  = 1<<5 - 1
	detailBit = 1 << 61
	lapBit    = 1 << 63

	placeMask = 1<<placeBits - 1
	peMask    = 1<<peBits - 1
	bytesMask = 1<<bytesBits - 1

	troubleBit = 1 << 63 // of the board's word
	closedBit  = 1 << 62
)

// Sizes of what is shared, in bytes.
const (
	commandBytes = 16
	detailBytes  = 48
	resultBytes  = 16
	boardBytes   = 128
	stateBytes   = 64
	queueBytes   = 120

	reportAt = 64 // in the board
)

const queueVersion = 1

// A command is what a GPU wants done.
type command struct {
	kind     kind
	detailed bool
	pe       uint32
	remote   uint64 // offset in the PE's region
	local    uint64 // an address as the GPU names it; without a detail, an offset in the first region
	bytes    uint64

	atomic       uint8
	word         uint8 // bytes of what an atomic changes
	region       uint16
	signalRegion uint16

	value, compare, signal uint64
}

// A detail is the words of what does not fit a command.
type detail [detailBytes / 8]uint64

// decode reads the two words of a command, and its detail if it has one. It accepts any bits: the
// builder checks what they say.
func decode(first, second uint64, d *detail) command {
	c := command{kind: kind(first >> kindShift & kindMask), pe: uint32(first >> placeBits & peMask),
		detailed: first&detailBit != 0}
	if !c.detailed {
		c.remote, c.local, c.bytes = first&placeMask, second&placeMask, second>>placeBits&bytesMask
		return c
	}
	c.atomic, c.word = uint8(second), uint8(second>>8)
	c.region, c.signalRegion = uint16(second>>16), uint16(second>>32)
	c.local, c.remote, c.bytes, c.value, c.compare, c.signal = d[0], d[1], d[2], d[3], d[4], d[5]
	return c
}

// lapOf is the parity of the lap of a position.
func lapOf(position uint64, log int) bool { return position>>log&1 == 0 }
