// SPDX-License-Identifier: MIT

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"syscall"
)

// AllocPD makes a protection domain. Regions and queue pairs of one domain can be used together.
func (c Context) AllocPD() (PD, error) {
	var pd C.uint64_t
	if err := check(C.vb_alloc_pd(c.c(), &pd), "allocate a protection domain of %s", c.Name()); err != nil {
		return 0, err
	}
	return PD(pd), nil
}

// Close frees the domain.
func (p PD) Close() error { return check(C.vb_dealloc_pd(C.uint64_t(p)), "free a protection domain") }

// RegMR registers memory, which remote work requests address from iova on. Old libraries do not
// support an iova other than addr.
func (p PD) RegMR(addr, length, iova uint64, access Access) (MR, Keys, error) {
	var mr C.uint64_t
	var keys [2]C.uint32_t
	rc := C.vb_reg_mr(C.uint64_t(p), C.uint64_t(addr), C.uint64_t(length), C.uint64_t(iova), C.uint32_t(access), &mr, &keys[0])
	if err := check(rc, "register %d bytes at %#x", length, addr); err != nil {
		return 0, Keys{}, explain(err)
	}
	return MR(mr), Keys{Local: uint32(keys[0]), Remote: uint32(keys[1])}, nil
}

// RegDmabuf registers length bytes of a dma-buf (GPU memory), from offset on. The descriptor may be
// closed afterwards.
func (p PD) RegDmabuf(offset, length, iova uint64, fd int, access Access) (MR, Keys, error) {
	var mr C.uint64_t
	var keys [2]C.uint32_t
	rc := C.vb_reg_dmabuf(C.uint64_t(p), C.uint64_t(offset), C.uint64_t(length), C.uint64_t(iova), C.int(fd), C.uint32_t(access), &mr, &keys[0])
	if err := check(rc, "register %d bytes at %d of a dma-buf", length, offset); err != nil {
		return 0, Keys{}, err
	}
	return MR(mr), Keys{Local: uint32(keys[0]), Remote: uint32(keys[1])}, nil
}

// Close deregisters the memory.
func (m MR) Close() error { return check(C.vb_dereg_mr(C.uint64_t(m)), "deregister memory") }

// rlimitMemlock is RLIMIT_MEMLOCK, which package syscall does not have.
const rlimitMemlock = 8

// explain adds the limit of locked memory, the most frequent reason why registration fails.
func explain(err error) error {
	var limit syscall.Rlimit
	if !errors.Is(err, syscall.ENOMEM) || syscall.Getrlimit(rlimitMemlock, &limit) != nil || limit.Cur == ^uint64(0) {
		return err
	}
	return fmt.Errorf("%w: this process may lock %d KiB (ulimit -l)", err, limit.Cur>>10)
}

func unsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
