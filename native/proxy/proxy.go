// SPDX-License-Identifier: MIT

package proxy

// #cgo CXXFLAGS: -std=c++17 -O2 -Wall -Wextra -Werror -fvisibility=hidden -I${SRCDIR}/../include
// #include "proxy.h"
import "C"

import (
	"runtime"
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

// Put runs mori_proxy_put: count puts of so many bytes each, waited for one by one if each, else all at the end.
func Put(g Grid, queue uint64, pe uint32, each bool, local, bytes, count uint64) Outcome {
	var out C.struct_mori_proxy_outcome
	one := C.uint32_t(0)
	if each {
		one = 1
	}
	C.mori_proxy_run_put(C.uint32_t(g.Blocks), C.uint32_t(g.Threads), C.uint64_t(queue), C.uint32_t(pe), one, C.uint64_t(local), C.uint64_t(bytes), C.uint64_t(count), &out)
	return Outcome{uint64(out.nanoseconds), uint64(out.failed), uint32(out.status)}
}

// Add runs mori_proxy_add: count fetching adds of one to a word, each of whose old values is counted in seen[old].
func Add(g Grid, queue uint64, pe, region uint32, offset uint64, seen []uint32) Outcome {
	var out C.struct_mori_proxy_outcome
	C.mori_proxy_run_add(C.uint32_t(g.Blocks), C.uint32_t(g.Threads), C.uint64_t(queue), C.uint32_t(pe), C.uint32_t(region), C.uint64_t(offset),
		C.uint64_t(len(seen)), (*C.uint32_t)(&seen[0]), &out)
	return Outcome{uint64(out.nanoseconds), uint64(out.failed), uint32(out.status)}
}

// A Side of the interchange: Side in native/kernels/proxy/interchange.cpp.
type Side struct {
	Queue, Local, Bytes, Words, Rounds uint64
	Value, Peer                        uint32
}

// Rounds is what a side found.
type Rounds struct {
	Nanoseconds, Wrong, Rounds uint64
	Status                     uint32
}

// Send runs mori_proxy_interchange_send on a block of so many threads, Receive its counterpart.
func Send(threads uint32, s Side) Rounds { return s.run(threads, true) }

// Receive waits for what Send sends, and looks at every byte.
func Receive(threads uint32, s Side) Rounds { return s.run(threads, false) }

func (s Side) run(threads uint32, send bool) Rounds {
	out := new(C.struct_mori_proxy_rounds)
	var pin runtime.Pinner
	pin.Pin(out)
	defer pin.Unpin()
	side := C.struct_mori_proxy_side{queue: C.uint64_t(s.Queue), local: C.uint64_t(s.Local), bytes: C.uint64_t(s.Bytes), words: C.uint64_t(s.Words),
		rounds: C.uint64_t(s.Rounds), value: C.uint32_t(s.Value), peer: C.uint32_t(s.Peer), outcome: C.uint64_t(uintptr(unsafe.Pointer(out)))}
	if send {
		C.mori_proxy_run_send(C.uint32_t(threads), &side)
	} else {
		C.mori_proxy_run_receive(C.uint32_t(threads), &side)
	}
	return Rounds{uint64(out.nanoseconds), uint64(out.wrong), uint64(out.rounds), uint32(out.status)}
}

// Layout is what mori_proxy_layout tells.
func Layout() []uint64 {
	numbers := make([]uint64, 64)
	n := C.mori_proxy_layout((*C.uint64_t)(&numbers[0]), C.int(len(numbers)))
	return numbers[:n]
}
