// SPDX-License-Identifier: MIT

package verbs

// #cgo CFLAGS: -std=gnu11 -O2 -Wall
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// The structs of words.go have the sizes of those in shim.h.
var (
	_ [0]byte = [unsafe.Sizeof(SGE{}) - C.sizeof_struct_vb_sge]byte{}
	_ [0]byte = [unsafe.Sizeof(SendWR{}) - C.sizeof_struct_vb_send_wr]byte{}
	_ [0]byte = [unsafe.Sizeof(RecvWR{}) - C.sizeof_struct_vb_recv_wr]byte{}
	_ [0]byte = [unsafe.Sizeof(WC{}) - C.sizeof_struct_vb_wc]byte{}

	_ [0]byte = [unsafe.Offsetof(SendWR{}.Op) - unsafe.Offsetof(C.struct_vb_send_wr{}.op)]byte{}
	_ [0]byte = [unsafe.Offsetof(SendWR{}.First) - unsafe.Offsetof(C.struct_vb_send_wr{}.first)]byte{}
	_ [0]byte = [unsafe.Offsetof(RecvWR{}.First) - unsafe.Offsetof(C.struct_vb_recv_wr{}.first)]byte{}
	_ [0]byte = [unsafe.Offsetof(WC{}.QPNum) - unsafe.Offsetof(C.struct_vb_wc{}.qp_num)]byte{}
	_ [0]byte = [unsafe.Offsetof(WC{}.HasImm) - unsafe.Offsetof(C.struct_vb_wc{}.has_imm)]byte{}
)

// Load opens the library, once, and caches the result. The error wraps errors.ErrUnsupported.
var Load = sync.OnceValue(func() error {
	var why [C.VB_WHY]C.char
	if C.vb_load(&why[0], C.size_t(len(why))) != 0 {
		return fmt.Errorf("load libibverbs: %s: %w", C.GoString(&why[0]), errors.ErrUnsupported)
	}
	return nil
})

// Library returns the file that Load has loaded, or "".
func Library() string {
	if Load() != nil {
		return ""
	}
	return C.GoString(C.vb_library())
}

// check converts an errno to an error, with the action in front.
func check(rc C.int, act string, args ...any) error {
	if rc == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(act, args...), syscall.Errno(rc))
}

// Devices returns the devices that have a driver in the kernel and one in the library.
func Devices() ([]Device, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	all := make([]C.struct_vb_device, 16)
	for {
		var n C.int
		if err := check(C.vb_devices(&all[0], C.int(len(all)), &n), "list RDMA devices"); err != nil {
			return nil, err
		}
		if int(n) <= len(all) {
			all = all[:n]
			break
		}
		all = make([]C.struct_vb_device, n)
	}
	devices := make([]Device, len(all))
	for i := range all {
		d := &all[i]
		devices[i] = Device{Name: C.GoString(&d.name[0]), GUID: uint64(d.guid), Node: NodeType(d.node), Transport: Transport(d.transport)}
	}
	return devices, nil
}

// Open opens a device by name. If the name is unknown, the error lists the existing devices.
func Open(name string) (Context, error) {
	if err := Load(); err != nil {
		return 0, fmt.Errorf("open device %q: %w", name, err)
	}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var ctx C.uint64_t
	rc := C.vb_open(cname, &ctx)
	if syscall.Errno(rc) == syscall.ENODEV {
		return 0, fmt.Errorf("open device %q, of %s: %w", name, known(), syscall.ENODEV)
	}
	if err := check(rc, "open device %q", name); err != nil {
		return 0, err
	}
	return Context(ctx), nil
}

// known lists the names of the devices.
func known() string {
	devices, err := Devices()
	if err != nil {
		return err.Error()
	}
	if len(devices) == 0 {
		return "no RDMA device"
	}
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = d.Name
	}
	return strings.Join(names, ", ")
}

// Close closes the device. Close its objects first.
func (c Context) Close() error { return check(C.vb_close(c.c()), "close device") }

func (c Context) c() C.uint64_t { return C.uint64_t(c) }
