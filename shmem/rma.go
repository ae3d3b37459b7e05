// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"

	"mori/core/memory"
	"mori/shmem/internal/heap"
)

// Put copies n bytes from src, any memory of this process, to the symmetric address dest of PE pe. src may be used again when it returns; dest
// has the bytes after Quiet, or a barrier. Parts that overlap are copied as if src were read before.
func (w *World) Put(dest, src, n uint64, pe int) error {
	if at := w.heap.Near(dest, n, pe); at != 0 && w.send(at, src, n, pe) {
		return nil
	}
	return w.put("put", dest, src, n, pe, true)
}

// PutNbi is Put that may return before src is read. Quiet waits for that.
func (w *World) PutNbi(dest, src, n uint64, pe int) error {
	if at := w.heap.Near(dest, n, pe); at != 0 && w.send(at, src, n, pe) {
		return nil
	}
	return w.put("put_nbi", dest, src, n, pe, false)
}

// Get copies n bytes from the symmetric address src of PE pe to dest, any memory of this process.
func (w *World) Get(dest, src, n uint64, pe int) error {
	if at := w.heap.Near(src, n, pe); at != 0 && fetch(dest, at, n) {
		return nil
	}
	return w.get("get", dest, src, n, pe, true)
}

// GetNbi is Get that may return before dest has the bytes. Quiet waits for that.
func (w *World) GetNbi(dest, src, n uint64, pe int) error {
	if at := w.heap.Near(src, n, pe); at != 0 && fetch(dest, at, n) {
		return nil
	}
	return w.get("get_nbi", dest, src, n, pe, false)
}

// send copies n bytes, maybe none, to where this process has memory of PE pe, and reports whether it could.
func (w *World) send(at, src, n uint64, pe int) bool {
	if checkLocal(src, n) != nil || memory.Move(at, src, n) != nil {
		return false
	}
	memory.Fence()
	if w.waiter.Sleeps(pe) {
		w.waiter.WakeHeap(pe)
	}
	return true
}

// fetch is send the other way.
func fetch(dest, at, n uint64) bool {
	return checkLocal(dest, n) == nil && memory.Move(dest, at, n) == nil
}

func (w *World) put(act string, dest, src, n uint64, pe int, wait bool) error {
	b, off, err := w.far(dest, src, n, pe)
	if err == nil && n > 0 {
		err = w.carry(b, off, src, n, pe, wait)
	}
	if err != nil {
		return transferError(act, dest, src, n, pe, err)
	}
	return nil
}

// carry puts n bytes to off in b of PE pe, which are there. wait: until src may be used again.
func (w *World) carry(b *heap.Block, off, src, n uint64, pe int, wait bool) error {
	if at := b.At(pe); at != 0 {
		act := b.Mem.MoveLater
		if wait {
			act = b.Mem.Move
		}
		if err := act(at+off, src, n); err != nil {
			return err
		}
		w.waiter.WakeHeap(pe)
		return nil
	}
	if wait {
		return w.net.PutNow(pe, b.Regions(), off, src, n)
	}
	return w.net.Put(pe, b.Regions(), off, src, n)
}

func (w *World) get(act string, dest, src, n uint64, pe int, wait bool) error {
	b, off, err := w.far(src, dest, n, pe)
	switch {
	case err != nil || n == 0:
	case b.At(pe) != 0 && wait:
		err = b.Mem.Move(dest, b.At(pe)+off, n)
	case b.At(pe) != 0:
		err = b.Mem.MoveLater(dest, b.At(pe)+off, n)
	case wait:
		err = w.net.GetNow(pe, b.Regions(), off, dest, n)
	default:
		err = w.net.Get(pe, b.Regions(), off, dest, n)
	}
	if err != nil {
		return transferError(act, dest, src, n, pe, err)
	}
	return nil
}

// far finds n bytes at the symmetric address addr of PE pe, and checks what can be known of the local end of the transfer. Of no bytes
// the addresses are not looked at.
func (w *World) far(addr, local, n uint64, pe int) (b *heap.Block, off uint64, err error) {
	if err = w.pes.HasPE(pe); err != nil || n == 0 {
		return nil, 0, err
	}
	if b, off, err = w.heap.Locate(addr, n); err != nil {
		return nil, 0, err
	}
	return b, off, checkLocal(local, n)
}

// lowest address that a process has: below are nil and small offsets from it.
const lowest = 4096

func checkLocal(addr, n uint64) error {
	if addr < lowest || addr+n < addr {
		return fmt.Errorf("%d bytes at %#x: %w", n, addr, ErrInvalid)
	}
	return nil
}

func transferError(act string, dest, src, n uint64, pe int, err error) error {
	return fmt.Errorf("%s %d bytes from %#x to %#x, PE %d: %w", act, n, src, dest, pe, err)
}
