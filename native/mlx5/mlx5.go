// SPDX-License-Identifier: MIT

package mlx5

// #cgo CFLAGS: -std=gnu11 -O2 -Wall
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"mori/native/verbs"
)

// Load opens the libraries, once, and caches the result. The error wraps errors.ErrUnsupported.
var Load = sync.OnceValue(func() error {
	var why [C.MX_WHY]C.char
	if C.mx_load(&why[0], C.size_t(len(why))) != 0 {
		return fmt.Errorf("load libmlx5: %s: %w", C.GoString(&why[0]), errors.ErrUnsupported)
	}
	return nil
})

// Handles.
type (
	Context uint64 // an open NIC
	Object  uint64 // an object that a command created
	Umem    uint64 // registered memory
	UAR     uint64 // a page of doorbells
)

func check(rc C.int, act string, args ...any) error {
	if rc == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(act, args...), syscall.Errno(rc))
}

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// Open opens a NIC by its libibverbs name, with the right to issue commands. If the device does not
// exist, the error wraps ENODEV and lists the mlx5 devices.
func Open(name string) (Context, error) {
	if err := Load(); err != nil {
		return 0, err
	}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var c C.uint64_t
	var others [C.MX_WHY]C.char
	rc := C.mx_open(cname, &c, &others[0], C.size_t(len(others)))
	if syscall.Errno(rc) == syscall.ENODEV {
		reason := "no mlx5 device"
		if found := C.GoString(&others[0]); found != "" {
			reason += " of that name among " + found
		}
		return 0, fmt.Errorf("open %s for commands: %s: %w", name, reason, syscall.ENODEV)
	}
	if err := check(rc, "open %s for commands", name); err != nil {
		return 0, err
	}
	return Context(c), nil
}

// Close closes the NIC.
func (c Context) Close() error { return check(C.mx_close(C.uint64_t(c)), "close the NIC") }

// General executes a command that is not about an object of this process.
func (c Context) General(in, out []byte) error {
	return check(C.mx_general(C.uint64_t(c), at(in), C.size_t(len(in)), at(out), C.size_t(len(out))), "command")
}

// Create executes a command that creates an object.
func (c Context) Create(in, out []byte) (Object, error) {
	var o C.uint64_t
	err := check(C.mx_create(C.uint64_t(c), at(in), C.size_t(len(in)), at(out), C.size_t(len(out)), &o), "make an object")
	return Object(o), err
}

// Modify executes a command that changes the object.
func (o Object) Modify(in, out []byte) error {
	return check(C.mx_modify(C.uint64_t(o), at(in), C.size_t(len(in)), at(out), C.size_t(len(out))), "change an object")
}

// Query executes a command that queries the object.
func (o Object) Query(in, out []byte) error {
	return check(C.mx_query(C.uint64_t(o), at(in), C.size_t(len(in)), at(out), C.size_t(len(out))), "query an object")
}

// Destroy destroys the object. The handle is invalid afterwards, also if Destroy fails.
func (o Object) Destroy() error { return check(C.mx_destroy(C.uint64_t(o)), "destroy an object") }

// access are the rights that the NIC has to registered memory.
const access = C.uint32_t(verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic)

// Register registers memory with the NIC and returns its number for commands.
func (c Context) Register(addr, bytes uint64) (u Umem, id uint32, err error) {
	var handle C.uint64_t
	var number C.uint32_t
	err = check(C.mx_umem(C.uint64_t(c), C.uint64_t(addr), C.uint64_t(bytes), access, &handle, &number), "register %d bytes at %#x", bytes, addr)
	return Umem(handle), uint32(number), err
}

// Close deregisters the memory.
func (u Umem) Close() error { return check(C.mx_umem_free(C.uint64_t(u)), "deregister memory") }

// NewUAR maps a page of doorbells. It returns the address of the register, and the page's number
// for commands.
func (c Context) NewUAR() (u UAR, register uint64, page uint32, err error) {
	var handle, reg C.uint64_t
	var number C.uint32_t
	err = check(C.mx_uar(C.uint64_t(c), &handle, &reg, &number), "map doorbells")
	return UAR(handle), uint64(reg), uint32(number), err
}

// Close unmaps the page.
func (u UAR) Close() { C.mx_uar_free(C.uint64_t(u)) }

// EQN returns the number of the first event queue.
func (c Context) EQN() (uint32, error) {
	var n C.uint32_t
	err := check(C.mx_eqn(C.uint64_t(c), &n), "query an event queue")
	return uint32(n), err
}
