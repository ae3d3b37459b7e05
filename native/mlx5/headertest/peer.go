// SPDX-License-Identifier: MIT

package headertest

// #cgo CFLAGS: -std=gnu11 -O2 -Wall
// #include "peer.h"
import "C"

import "unsafe"

// Built tells whether the header was there.
func Built() bool { return C.peer_built() != 0 }

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// Control writes a control segment to 16 bytes.
func Control(b []byte, pi uint16, opcode, opmod uint8, qpn uint32, flags, ds uint8, imm uint32) {
	C.peer_control(at(b), C.uint16_t(pi), C.uint8_t(opcode), C.uint8_t(opmod), C.uint32_t(qpn), C.uint8_t(flags), C.uint8_t(ds), C.uint32_t(imm))
}

// Data writes a data segment to 16 bytes.
func Data(b []byte, bytes, key uint32, addr uint64) {
	C.peer_data(at(b), C.uint32_t(bytes), C.uint32_t(key), C.uint64_t(addr))
}

// Remote writes a remote address segment to 16 bytes.
func Remote(b []byte, addr uint64, key uint32) {
	C.peer_remote(at(b), C.uint64_t(addr), C.uint32_t(key))
}

// Atomic writes an atomic segment to 16 bytes.
func Atomic(b []byte, swapAdd, compare uint64) {
	C.peer_atomic(at(b), C.uint64_t(swapAdd), C.uint64_t(compare))
}

// InlineHead writes how inline data begins to 4 bytes.
func InlineHead(b []byte, bytes uint32) { C.peer_inline_head(at(b), C.uint32_t(bytes)) }

// A CQE is a completion as the header's structs have it.
type CQE struct {
	Opcode, Owner, Format, Syndrome, Vendor uint8
	Counter                                 uint16
	Bytes, Imm, Last                        uint32
}

// ParseCQE reads 64 bytes.
func ParseCQE(b []byte) CQE {
	var c C.struct_peer_cqe
	C.peer_parse_cqe(at(b), &c)
	return CQE{
		Opcode: uint8(c.opcode), Owner: uint8(c.owner), Format: uint8(c.format), Syndrome: uint8(c.syndrome), Vendor: uint8(c.vendor),
		Counter: uint16(c.counter), Bytes: uint32(c.bytes), Imm: uint32(c.imm), Last: uint32(c.last),
	}
}

// Set writes a field of a command.
func Set(b []byte, value uint32, bit, bits int) {
	C.peer_set(at(b), C.uint32_t(value), C.size_t(bit), C.size_t(bits))
}

// Get reads a field of a command.
func Get(b []byte, bit, bits int) uint32 {
	return uint32(C.peer_get(at(b), C.size_t(bit), C.size_t(bits)))
}

// Constants are the header's by name; sizes are "sizeof ...".
func Constants() map[string]int64 {
	all := map[string]int64{}
	for i := 0; ; i++ {
		var name *C.char
		v := C.peer_constant(C.int(i), &name)
		if name == nil {
			return all
		}
		all[C.GoString(name)] = int64(v)
	}
}
