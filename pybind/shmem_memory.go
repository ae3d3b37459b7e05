// SPDX-License-Identifier: MIT

package pybind

import "context"

// collective starts a call that all PEs make.
func collective(call func(*pe) (uint64, error)) (job uint64, err error) {
	p, err := current()
	if err != nil {
		return 0, err
	}
	return p.jobs.start(func(context.Context) (uint64, error) {
		if p.closing.Load() {
			return 0, errNoPE
		}
		return call(p)
	}), nil
}

// ShmemMalloc starts to allocate size bytes on every PE. JobResult: the address.
func ShmemMalloc(size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return p.Malloc(size) })
}

// ShmemMallocAlign is ShmemMalloc at a multiple of align.
func ShmemMallocAlign(align uint64, size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return p.MallocAlign(align, size) })
}

// ShmemCalloc is ShmemMalloc of count zeroed elements.
func ShmemCalloc(count uint64, size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return p.Calloc(count, size) })
}

// ShmemFree starts to free what ShmemMalloc gave. JobResult: 0.
func ShmemFree(addr uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return 0, p.Free(addr) })
}

// ShmemRegister starts to make size bytes at addr, which the caller keeps, reachable by all PEs.
// JobResult: 0.
func ShmemRegister(addr uint64, size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return 0, p.RegisterBuffer(addr, size) })
}

// ShmemDeregister starts to take ShmemRegister back. JobResult: 0.
func ShmemDeregister(addr uint64, size uint64) (job uint64, err error) {
	defer guard(&err)
	return collective(func(p *pe) (uint64, error) { return 0, p.DeregisterBuffer(addr, size) })
}

// ShmemPtr returns where a PE's copy of a symmetric address lies in this process, 0 if it does not.
func ShmemPtr(addr uint64, target int) (at uint64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	return p.Ptr(addr, target), nil
}
