// SPDX-License-Identifier: MIT

package proxy

// #cgo CXXFLAGS: -std=c++17 -O2 -Wall -Wextra -Werror -fvisibility=hidden -I${SRCDIR}/../include
// #cgo LDFLAGS: -static-libstdc++ -static-libgcc
// #include "proxy.h"
import "C"

import (
	"encoding/binary"
	"unsafe"
)

// An Outcome is what the threads of Put or Add found.
type Outcome struct {
	Nanoseconds uint64 // of the slowest thread
	Failed      uint64 // waits that did not end well
	Status      uint32 // of one of them
}

// A Grid is so many blocks of so many threads, whole warps of four.
type Grid struct{ Blocks, Threads uint32 }

// OutcomeBytes is the size of an Outcome where a GPU puts it, zeroed at first.
const OutcomeBytes = 24

// ParseOutcome reads what a GPU put.
func ParseOutcome(b []byte) Outcome {
	le := binary.LittleEndian
	return Outcome{le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:])}
}

func number(yes bool) C.uint32_t {
	if yes {
		return 1
	}
	return 0
}

// Put runs mori_proxy_put: count puts of so many bytes each, waited for one by one if each, else
// all at the end.
func Put(g Grid, queue uint64, pe uint32, each bool, local, bytes, count uint64) Outcome {
	var out C.struct_mori_proxy_outcome
	C.mori_proxy_run_put(C.uint32_t(g.Blocks), C.uint32_t(g.Threads), C.uint64_t(queue), C.uint32_t(pe), number(each), C.uint64_t(local),
		C.uint64_t(bytes), C.uint64_t(count), &out)
	return Outcome{uint64(out.nanoseconds), uint64(out.failed), uint32(out.status)}
}

// Store runs mori_proxy_store, the same by stores to memory at there. bytes are a multiple of 8.
func Store(g Grid, there uint64, each bool, local, bytes, count uint64) Outcome {
	var out C.struct_mori_proxy_outcome
	C.mori_proxy_run_store(C.uint32_t(g.Blocks), C.uint32_t(g.Threads), C.uint64_t(there), number(each), C.uint64_t(local), C.uint64_t(bytes),
		C.uint64_t(count), &out)
	return Outcome{uint64(out.nanoseconds), uint64(out.failed), uint32(out.status)}
}

// Add runs mori_proxy_add: count fetching adds of one to a word, each of whose old values is
// counted in seen[old].
func Add(g Grid, queue uint64, pe, region uint32, offset uint64, seen []uint32) Outcome {
	var out C.struct_mori_proxy_outcome
	C.mori_proxy_run_add(C.uint32_t(g.Blocks), C.uint32_t(g.Threads), C.uint64_t(queue), C.uint32_t(pe), C.uint32_t(region), C.uint64_t(offset),
		C.uint64_t(len(seen)), (*C.uint32_t)(&seen[0]), &out)
	return Outcome{uint64(out.nanoseconds), uint64(out.failed), uint32(out.status)}
}

// A Side of the interchange: Side in native/kernels/proxy/interchange.cpp. Its kernels are
// mori_proxy_interchange_send and mori_proxy_interchange_receive of the module "proxy_interchange",
// which take Append's bytes as their one argument, aligned to 8.
type Side struct {
	Queue, Local, Bytes, Words, Rounds uint64
	Value, Peer                        uint32
	Outcome                            uint64 // where a GPU puts RoundsBytes, zeroed; Send and Receive have their own
}

// Append appends the kernels' argument.
func (s Side) Append(b []byte) []byte {
	le := binary.LittleEndian
	for _, v := range []uint64{s.Queue, s.Local, s.Bytes, s.Words, s.Rounds, uint64(s.Peer)<<32 | uint64(s.Value), s.Outcome} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// Rounds is what a side found.
type Rounds struct {
	Nanoseconds, Wrong, Rounds uint64
	Status                     uint32
}

// RoundsBytes is the size of Rounds where kernels put it.
const RoundsBytes = 32

// ParseRounds reads what a kernel put.
func ParseRounds(b []byte) Rounds {
	le := binary.LittleEndian
	return Rounds{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint32(b[24:])}
}

// Send runs mori_proxy_interchange_send on a block of so many threads, Receive its counterpart.
func Send(threads uint32, s Side) Rounds { return s.run(threads, 1) }

// Receive waits for what Send sends, and looks at every byte.
func Receive(threads uint32, s Side) Rounds { return s.run(threads, 0) }

func (s Side) run(threads, send uint32) Rounds {
	args, out := s.Append(nil), make([]byte, RoundsBytes)
	C.mori_proxy_run_interchange(C.uint32_t(threads), C.int(send), unsafe.Pointer(&args[0]), unsafe.Pointer(&out[0]))
	return ParseRounds(out)
}

// Layout is what mori_proxy_layout returns.
func Layout() []uint64 {
	numbers := make([]uint64, 64)
	n := C.mori_proxy_layout((*C.uint64_t)(&numbers[0]), C.int(len(numbers)))
	return numbers[:n]
}
