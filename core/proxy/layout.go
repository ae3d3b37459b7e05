// SPDX-License-Identifier: MIT

package proxy

import "mori/native/abi"

// A kind is the kind of a command.
type kind uint8

const (
	kindPut       = kind(abi.ProxyKindPut)
	kindGet       = kind(abi.ProxyKindGet)
	kindPutSignal = kind(abi.ProxyKindPutSignal)
	kindImmediate = kind(abi.ProxyKindImmediate)
	kindAtomic    = kind(abi.ProxyKindAtomic)
	kindFetch     = kind(abi.ProxyKindFetch)
	kindFence     = kind(abi.ProxyKindFence)

	kindEnd = kindFence + 1
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

// Bits of the words of a command, and of the board.
const (
	placeMask = 1<<abi.ProxyPlaceBits - 1
	peMask    = 1<<abi.ProxyPEBits - 1
	bytesMask = 1<<abi.ProxyBytesBits - 1
	kindMask  = abi.ProxyHasDetail>>abi.ProxyKindShift - 1
	lapBit    = 1 << abi.ProxyLapShift
)

// A command is an operation that a GPU requests.
type command struct {
	kind     kind
	detailed bool
	pe       uint32
	remote   uint64 // offset in the PE's region
	local    uint64 // an address in the GPU's address space; without a detail, an offset in the first region
	bytes    uint64

	atomic       uint8
	word         uint8 // size of an atomic's word
	region       uint16
	signalRegion uint16

	value, compare, signal uint64
}

// decode decodes the two words of a command, and its detail if it has one. It accepts any bits: the
// builder validates them.
func decode(first, second uint64, d *abi.ProxyDetail) command {
	c := command{kind: kind(first >> abi.ProxyKindShift & kindMask), pe: uint32(first >> abi.ProxyPlaceBits & peMask),
		detailed: first&abi.ProxyHasDetail != 0}
	if !c.detailed {
		c.remote, c.local, c.bytes = first&placeMask, second&placeMask, second>>abi.ProxyPlaceBits&bytesMask
		return c
	}
	c.atomic, c.word = uint8(second), uint8(second>>abi.ProxyWordShift)
	c.region, c.signalRegion = uint16(second>>abi.ProxyRegionShift), uint16(second>>abi.ProxySignalRegionShift)
	c.local, c.remote, c.bytes, c.value, c.compare, c.signal = d.Local, d.Remote, d.Bytes, d.Value, d.Compare, d.Signal
	return c
}

// lapOf returns the parity of the lap of a position.
func lapOf(position uint64, log int) bool { return position>>log&1 == 0 }
