// SPDX-License-Identifier: MIT

//go:build ofi

package libfabric

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// The structs of words.go have the sizes of those in shim.h.
var (
	_ [0]byte = [unsafe.Sizeof(Op{}) - C.sizeof_struct_lf_op]byte{}
	_ [0]byte = [unsafe.Sizeof(Completion{}) - C.sizeof_struct_lf_completion]byte{}
	_ [0]byte = [unsafe.Sizeof(Queue{}) - C.sizeof_struct_lf_queue]byte{}
)

// Load opens the library, once, and caches the result. The error wraps errors.ErrUnsupported.
var Load = sync.OnceValue(func() error {
	if why := C.lf_load(); why != nil {
		return fmt.Errorf("load libfabric: %s: %w", C.GoString(why), errors.ErrUnsupported)
	}
	if major, minor := Version(); major != 1 || minor < 17 {
		return fmt.Errorf("load libfabric: it is version %d.%d, want 1.17 or newer: %w", major, minor, errors.ErrUnsupported)
	}
	return nil
})

// Version returns the version of the loaded library.
func Version() (major, minor uint16) {
	v := uint32(C.lf_version())
	return uint16(v >> 16), uint16(v)
}

// errno converts a result of the library: 0, or a negative number of fi_errno.h.
func errno(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return syscall.Errno(-rc)
}

// ErrorText returns the library's text for a number of fi_errno.h.
func ErrorText(err int32) string { return C.GoString(C.lf_strerror(C.int(err))) }

// An InfoList is a result of GetInfo.
type InfoList struct{ head FID }

// GetInfo lists the library's offers. The caller frees the list.
func GetInfo(h *Hints) (InfoList, error) {
	var c C.struct_lf_hints
	for _, s := range []struct {
		to   *[C.LF_NAME]C.char
		from string
	}{{&c.provider, h.Provider}, {&c.fabric, h.Fabric}, {&c.domain, h.Domain}, {&c.source, h.Source}, {&c.node, h.Node}, {&c.service, h.Service}} {
		if len(s.from) >= len(s.to) {
			return InfoList{}, syscall.ENAMETOOLONG
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(s.to)), len(s.to)), s.from)
	}
	c.caps, c.tx_op_flags = C.uint64_t(h.Caps), C.uint64_t(h.TxOpFlags)
	c.ep_type, c.mr_mode = C.uint32_t(h.EPType), C.uint32_t(h.MRMode)
	var list C.uint64_t
	err := errno(C.lf_getinfo(&c, &list))
	return InfoList{FID(list)}, err
}

// All returns the infos of the list, best first. They are valid until Free.
func (l InfoList) All() []FID {
	var all []FID
	for in := l.head; in != 0; in = FID(C.lf_next(C.uint64_t(in))) {
		all = append(all, in)
	}
	return all
}

// Free frees the list.
func (l InfoList) Free() { FreeInfo(l.head) }

// FreeInfo frees an info and those after it in its list.
func FreeInfo(info FID) {
	if info != 0 {
		C.lf_freeinfo(C.uint64_t(info))
	}
}

// Handle returns the connection request of a ConnReq event's info.
func Handle(info FID) FID { return FID(C.lf_handle(C.uint64_t(info))) }

// Describe returns the contents of info.
func Describe(info FID) Offer {
	var c C.struct_lf_offer
	C.lf_describe(C.uint64_t(info), &c)
	return Offer{
		Provider: C.GoString(&c.provider[0]), Fabric: C.GoString(&c.fabric[0]), Domain: C.GoString(&c.domain[0]),
		Caps: uint64(c.caps), Mode: uint64(c.mode), TxOrder: uint64(c.tx_order), RxOrder: uint64(c.rx_order),
		MaxMsg: uint64(c.max_msg), Inject: uint64(c.inject), TxSize: uint64(c.tx_size), RxSize: uint64(c.rx_size),
		IOV: uint64(c.iov), RMAIOV: uint64(c.rma_iov), CQData: uint64(c.cq_data), KeySize: uint64(c.key_size),
		OrderRAW: uint64(c.order_raw), OrderWAR: uint64(c.order_war), OrderWAW: uint64(c.order_waw),
		EPType: uint32(c.ep_type), MRMode: uint32(c.mr_mode), AddrFormat: uint32(c.addr_format),
		Src:  C.GoBytes(unsafe.Pointer(&c.src[0]), C.int(c.src_len)),
		Dest: C.GoBytes(unsafe.Pointer(&c.dest[0]), C.int(c.dest_len)),
	}
}

// SetSrc sets the source address of info.
func SetSrc(info FID, addr []byte, format uint32) error {
	return errno(C.lf_set_src(C.uint64_t(info), unsafe.Pointer(unsafe.SliceData(addr)), C.size_t(len(addr)), C.uint32_t(format)))
}

// textBytes returns the provider's text for a failure.
func (c *Completion) textBytes() []byte {
	b := c.text[:]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}

// Text returns the provider's text for a failure.
func (c *Completion) Text() string { return string(c.textBytes()) }
