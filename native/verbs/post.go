// SPDX-License-Identifier: MIT

package verbs

// #cgo noescape vb_post_send
// #cgo nocallback vb_post_send
// #cgo noescape vb_post_recv
// #cgo nocallback vb_post_recv
// #include "shim.h"
import "C"

import (
	"syscall"
	"unsafe"
)

// PostSend posts wrs in order, in chains of 64, without blocking. It returns how many were accepted
// and why the next one was not. ENOMEM: the queue is full. EINVAL: the request uses elements
// outside sges, or features that the queue pair does not have.
func (q QP) PostSend(wrs []SendWR, sges []SGE) (n int, err error) {
	took := C.vb_post_send(q.c(), (*C.struct_vb_send_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.int(len(wrs)),
		(*C.struct_vb_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.size_t(len(sges)))
	return int(took.n), posted(took.err)
}

// PostRecv posts receives like PostSend.
func (q QP) PostRecv(wrs []RecvWR, sges []SGE) (n int, err error) {
	took := C.vb_post_recv(q.c(), (*C.struct_vb_recv_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.int(len(wrs)),
		(*C.struct_vb_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.size_t(len(sges)))
	return int(took.n), posted(took.err)
}

// posted returns the errno without wrapping: a full queue is normal and must not allocate.
func posted(err C.int) error {
	if err == 0 {
		return nil
	}
	return syscall.Errno(err)
}
