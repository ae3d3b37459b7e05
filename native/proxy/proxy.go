// SPDX-License-Identifier: MIT

package proxy

// #cgo CXXFLAGS: -std=c++17 -O2 -Wall -Wextra -Werror -fvisibility=hidden -I${SRCDIR}/../include
// #cgo LDFLAGS: -static-libstdc++ -static-libgcc
// #include "proxy.h"
import "C"

import (
	"unsafe"

	"mori/native/abi"
)

// A Grid has Blocks blocks of Threads threads, in whole warps of four.
type Grid struct{ Blocks, Threads uint32 }

func number(yes bool) C.uint32_t {
	if yes {
		return 1
	}
	return 0
}

// Put runs mori_proxy_put: count puts of bytes bytes each. With each, it waits after every put,
// else once at the end.
func Put(g Grid, queue uint64, pe uint32, each bool, local, bytes, count uint64) (out abi.ProxyPutOutcome) {
	C.mori_proxy_run_put(C.uint32_t(g.Blocks), C.uint32_t(g.Threads), C.uint64_t(queue), C.uint32_t(pe), number(each), C.uint64_t(local),
		C.uint64_t(bytes), C.uint64_t(count), unsafe.Pointer(&out))
	return out
}

// Store runs mori_proxy_store, which does the same with stores to memory at there. bytes must be a
// multiple of 8.
func Store(g Grid, there uint64, each bool, local, bytes, count uint64) (out abi.ProxyPutOutcome) {
	C.mori_proxy_run_store(C.uint32_t(g.Blocks), C.uint32_t(g.Threads), C.uint64_t(there), number(each), C.uint64_t(local), C.uint64_t(bytes),
		C.uint64_t(count), unsafe.Pointer(&out))
	return out
}

// Add runs mori_proxy_add: count fetching adds of one to a word. It counts each previous value in
// seen[old].
func Add(g Grid, queue uint64, pe, region uint32, offset uint64, seen []uint32) (out abi.ProxyPutOutcome) {
	C.mori_proxy_run_add(C.uint32_t(g.Blocks), C.uint32_t(g.Threads), C.uint64_t(queue), C.uint32_t(pe), C.uint32_t(region), C.uint64_t(offset),
		C.uint64_t(len(seen)), (*C.uint32_t)(&seen[0]), unsafe.Pointer(&out))
	return out
}

// Send runs mori_proxy_interchange_send on a block of this many threads. Receive is its
// counterpart. The outcome address in s is not used.
func Send(threads uint32, s abi.ProxyInterchangeSide) abi.ProxyInterchangeOutcome {
	return interchange(threads, 1, s)
}

// Receive waits for the data of Send, and verifies every byte.
func Receive(threads uint32, s abi.ProxyInterchangeSide) abi.ProxyInterchangeOutcome {
	return interchange(threads, 0, s)
}

func interchange(threads uint32, send C.int, s abi.ProxyInterchangeSide) (out abi.ProxyInterchangeOutcome) {
	C.mori_proxy_run_interchange(C.uint32_t(threads), send, unsafe.Pointer(&s), unsafe.Pointer(&out))
	return out
}
