// SPDX-License-Identifier: MIT

package headertest

// #cgo CFLAGS: -std=gnu11 -O2 -Wall
// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// #include "peer.h"
//
// static const struct peer *peer;
//
// static const char *peer_load(const char *path) {
//	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
//	peer = lib ? dlsym(lib, "peer") : NULL;
//	return peer ? NULL : dlerror();
// }
//
// static void peer_control(void *seg, uint16_t pi, uint8_t opcode, uint8_t opmod, uint32_t
//                          qpn, uint8_t flags, uint8_t ds, uint32_t imm) {
//	peer->control(seg, pi, opcode, opmod, qpn, flags, ds, imm);
// }
// static void peer_data(void *seg, uint32_t bytes, uint32_t key, uint64_t addr) {
//	peer->data(seg, bytes, key, addr);
// }
// static void peer_remote(void *seg, uint64_t addr, uint32_t key) {
//	peer->remote(seg, addr, key);
// }
// static void peer_atomic(void *seg, uint64_t swap_add, uint64_t compare) {
//	peer->atomic(seg, swap_add, compare);
// }
// static void peer_inline_head(void *seg, uint32_t bytes) {
//	peer->inline_head(seg, bytes);
// }
// static void peer_parse_cqe(const void *cqe, struct peer_cqe *out) {
//	peer->parse_cqe(cqe, out);
// }
// static void peer_set(void *mailbox, uint32_t value, size_t bit, size_t bits) {
//	peer->set(mailbox, value, bit, bits);
// }
// static uint32_t peer_get(const void *mailbox, size_t bit, size_t bits) {
//	return peer->get(mailbox, bit, bits);
// }
// static int64_t peer_constant(int i, const char **name) {
//	return peer->constant(i, name);
// }
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"mori/native/internal/emulate"
	"mori/native/internal/layout"
)

// compileTime bounds the compiler on a busy machine.
const compileTime = 2 * time.Minute

// Need skips a test where libibverbs-dev is not installed, or fails it if MORI_REQUIRE has verbs
// in its list. It comes before all else.
func Need(tb testing.TB) {
	tb.Helper()
	root, err := emulate.Root()
	if err != nil {
		tb.Fatal(err)
	}
	vendor := layout.Comparison{Vendor: filepath.Join(root, "native/mlx5/testdata/vendor.h")}
	vendor.Need(tb, "verbs", "libibverbs-dev")
	loading.Do(func() { loadError = load(filepath.Join(root, "native/mlx5/headertest/testdata/peer.c")) })
	if loadError != nil {
		tb.Fatal(loadError)
	}
}

var (
	loading   sync.Once
	loadError error
)

// load compiles and loads what writes and reads formats by the header.
func load(source string) (err error) {
	dir, err := os.MkdirTemp("", "mori-headertest-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	library := filepath.Join(dir, "peer.so")
	compiler := exec.CommandContext(ctx, layout.Compiler(), "-std=gnu11", "-O2", "-Wall", "-shared", "-fPIC", "-o", library, source)
	if out, err := compiler.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", source, err, out)
	}
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if why := C.peer_load(path); why != nil {
		return fmt.Errorf("load %s: %s", library, C.GoString(why))
	}
	return nil
}

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
