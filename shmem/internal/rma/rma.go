// SPDX-License-Identifier: MIT

package rma

import (
	"fmt"
	"sync/atomic"

	"mori/core/memory"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
	"mori/shmem/internal/wait"
)

// RMA has the one-sided operations of a PE: puts, gets, atomics and signals.
type RMA struct {
	pes   *peers.Group
	heap  *heap.Heap
	wake  wait.Waker
	net   *remote.Network // to PEs whose memory is not mapped; nil if there is none
	order *Order

	usual atomic.Pointer[heap.Block] // the heap while the World works and the CPU can load it; for near
}

// Open initialises r with the operations on the memory of h. World contains an RMA, not a pointer
// to one, which saves a load per operation.
func Open(r *RMA, pes *peers.Group, h *heap.Heap, wake wait.Waker, net *remote.Network, o *Order) {
	r.pes, r.heap, r.wake, r.net, r.order = pes, h, wake, net, o
	if main := h.Main(); main != nil && !main.OnGPU {
		r.usual.Store(main)
		pes.OnFail(func() { Slow(r) })
	}
}

// near returns the address in this process of PE pe's copy of n bytes at the symmetric address
// addr. It returns 0 if the World is broken or the bytes are not in a mapped heap.
//
// Small operations on mapped heaps take nanoseconds, most of which went to finding the word. They
// try near first, which handles only the common case; Locate and Check handle the rest. near must
// stay inlinable: as a call it turns an atomic of 6.0 ns into one of 6.8.
func (r *RMA) near(addr, n uint64, pe int) uint64 {
	return r.usual.Load().Near(addr, n, pe)
}

// Slow makes all operations check whether the World works, from now on.
func Slow(r *RMA) { r.usual.Store(nil) }

// Put copies n bytes from src, any memory of this process, to the symmetric address dest of PE pe.
// src may be reused when Put returns. dest has the bytes after Quiet, or after a barrier.
// Overlapping parts are copied as if src were read first.
func (r *RMA) Put(dest, src, n uint64, pe int) error {
	if at := r.near(dest, n, pe); at != 0 && r.send(at, src, n, pe) {
		return nil
	}
	return r.put("put", dest, src, n, pe, true)
}

// PutNbi is Put that may return before src has been read. Quiet waits for that.
func (r *RMA) PutNbi(dest, src, n uint64, pe int) error {
	if at := r.near(dest, n, pe); at != 0 && r.send(at, src, n, pe) {
		return nil
	}
	return r.put("put_nbi", dest, src, n, pe, false)
}

// Get copies n bytes from the symmetric address src of PE pe to dest, any memory of this process.
func (r *RMA) Get(dest, src, n uint64, pe int) error {
	if at := r.near(src, n, pe); at != 0 && fetch(dest, at, n) {
		return nil
	}
	return r.get("get", dest, src, n, pe, true)
}

// GetNbi is Get that may return before dest has the bytes. Quiet waits for that.
func (r *RMA) GetNbi(dest, src, n uint64, pe int) error {
	if at := r.near(src, n, pe); at != 0 && fetch(dest, at, n) {
		return nil
	}
	return r.get("get_nbi", dest, src, n, pe, false)
}

// send copies n bytes, maybe 0, to a mapped PE, and reports whether PE pe is mapped.
func (r *RMA) send(at, src, n uint64, pe int) bool {
	if checkLocal(src, n) != nil || memory.Move(at, src, n) != nil {
		return false
	}
	memory.Fence()
	if r.wake.Sleeps(pe) {
		r.wake.WakeHeap(pe)
	}
	return true
}

// fetch is send in the other direction.
func fetch(dest, at, n uint64) bool {
	return checkLocal(dest, n) == nil && memory.Move(dest, at, n) == nil
}

func (r *RMA) put(act string, dest, src, n uint64, pe int, wait bool) error {
	b, off, err := r.far(dest, src, n, pe)
	if err == nil && n > 0 {
		err = r.carry(b, off, src, n, pe, wait)
	}
	if err != nil {
		return transferError(act, dest, src, n, pe, err)
	}
	return nil
}

// carry puts n bytes, which are mapped, to off in b of PE pe. If wait is set, it returns when src
// may be reused.
func (r *RMA) carry(b *heap.Block, off, src, n uint64, pe int, wait bool) error {
	if at := b.At(pe); at != 0 {
		act := b.Mem.MoveLater
		if wait {
			act = b.Mem.Move
		}
		if err := act(at+off, src, n); err != nil {
			return err
		}
		r.wake.WakeHeap(pe)
		return nil
	}
	if wait {
		return r.net.PutNow(pe, b.Regions(), off, src, n)
	}
	return r.net.Put(pe, b.Regions(), off, src, n)
}

func (r *RMA) get(act string, dest, src, n uint64, pe int, wait bool) error {
	b, off, err := r.far(src, dest, n, pe)
	switch {
	case err != nil || n == 0:
	case b.At(pe) != 0 && wait:
		err = b.Mem.Move(dest, b.At(pe)+off, n)
	case b.At(pe) != 0:
		err = b.Mem.MoveLater(dest, b.At(pe)+off, n)
	case wait:
		err = r.net.GetNow(pe, b.Regions(), off, dest, n)
	default:
		err = r.net.Get(pe, b.Regions(), off, dest, n)
	}
	if err != nil {
		return transferError(act, dest, src, n, pe, err)
	}
	return nil
}

// far finds n bytes at the symmetric address addr of PE pe, and checks the local end of the
// transfer as far as possible. With n == 0 it checks no addresses.
func (r *RMA) far(addr, local, n uint64, pe int) (b *heap.Block, off uint64, err error) {
	if err = r.pes.HasPE(pe); err != nil || n == 0 {
		return nil, 0, err
	}
	if b, off, err = r.heap.Locate(addr, n); err != nil {
		return nil, 0, err
	}
	return b, off, checkLocal(local, n)
}

// lowest valid address of a process; below are nil and small offsets from it
const lowest = 4096

func checkLocal(addr, n uint64) error {
	if addr < lowest || addr+n < addr {
		return fmt.Errorf("%d bytes at %#x: %w", n, addr, peers.ErrInvalid)
	}
	return nil
}

func transferError(act string, dest, src, n uint64, pe int, err error) error {
	return fmt.Errorf("%s %d bytes from %#x to %#x, PE %d: %w", act, n, src, dest, pe, err)
}
