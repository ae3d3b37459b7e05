// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/arena"
)

func (n *wire) put(pe int, b *block, off, src, size uint64) error {
	return n.transfer(fabric.OpWrite, pe, b, off, src, size, nil)
}

func (n *wire) get(pe int, b *block, off, dst, size uint64) error {
	return n.transfer(fabric.OpRead, pe, b, off, dst, size, nil)
}

// putNow copies what is short, and waits for the rest.
func (n *wire) putNow(pe int, b *block, off, src, size uint64) error {
	r := b.reach.Load()
	if _, left := r.at(off); size > min(bounceBytes, left) {
		return n.transferNow(fabric.OpWrite, pe, b, off, src, size)
	}
	i, f, err := n.take(pe, fabric.OpWrite, nil)
	if err != nil {
		return err
	}
	if err = n.bring(f.at, src, size); err != nil {
		n.land(i)
		return err
	}
	return n.launch(i, fabric.Op{Seg: fabric.Seg{Addr: f.at, Len: size}, RSeg: r.remoteSeg(pe, off, size)})
}

func (n *wire) getNow(pe int, b *block, off, dst, size uint64) error {
	return n.transferNow(fabric.OpRead, pe, b, off, dst, size)
}

func (n *wire) transferNow(kind fabric.OpKind, pe int, b *block, off, local, size uint64) error {
	w := newWaiter()
	_, err := n.wait(w, pe, n.transfer(kind, pe, b, off, local, size, w))
	return err
}

// transfer queues size bytes in pieces. w, if there is one, waits for them.
func (n *wire) transfer(kind fabric.OpKind, pe int, b *block, off, local, size uint64, w *waiter) error {
	end, err := n.local(local, size)
	if err != nil {
		return err
	}
	if end.staged {
		return n.transferStaged(kind, pe, b, off, local, size)
	}
	r, piece := b.reach.Load(), n.piece()
	for size > 0 {
		_, left := r.at(off)
		desc, here := end.desc(local)
		now := min(size, piece, left, here)
		i, _, err := n.take(pe, kind, w)
		if err != nil {
			return err
		}
		if err = n.launch(i, fabric.Op{Seg: fabric.Seg{Addr: local, Len: now, MR: desc}, RSeg: r.remoteSeg(pe, off, now)}); err != nil {
			return err
		}
		off, local, size = off+now, local+now, size-now
	}
	return nil
}

// bring copies size bytes of the user's to memory of this process.
func (n *wire) bring(to, src, size uint64) error {
	if n.w.gpu != nil {
		return n.w.gpu.Move(to, src, size)
	}
	return access.Host{}.Move(to, src, size)
}

// A localEnd is how the provider knows local memory.
type localEnd struct {
	sym    *block // that the memory is of, where the provider has to know it: memory of GPUs, and all if NICs carry the bytes; else nil
	staged bool   // the provider cannot be given it
}

// desc is the descriptor of the memory at addr, and for how many bytes it is.
func (e *localEnd) desc(addr uint64) (desc fabric.MRDesc, left uint64) {
	if e.sym == nil {
		return 0, math.MaxUint64
	}
	r := e.sym.reach.Load()
	i, left := r.at(addr - e.sym.base)
	return r.own[i].Desc(), left
}

// local finds local memory. Memory of a GPU that is not of the heap has to be staged.
func (n *wire) local(addr, size uint64) (e localEnd, err error) {
	if n.w.gpu != nil || n.bounceMR != nil {
		if b, _ := n.w.blockAt(addr, size); b != nil && (b.gpu || n.bounceMR != nil) {
			return localEnd{sym: b}, nil
		}
	}
	if n.w.gpu != nil {
		p, err := device.Lookup(addr)
		if err != nil {
			return e, err
		}
		if p.Kind == device.OnDevice {
			return localEnd{staged: true}, n.w.gpu.Check(addr, size)
		}
	}
	if !memory.Mapped(addr, size) { // a transport that stumbles over it may lose its connection
		return e, fmt.Errorf("the local memory is not there: %w", ErrInvalid)
	}
	return e, nil
}

// transferStaged goes by host memory, and waits for it.
func (n *wire) transferStaged(kind fabric.OpKind, pe int, b *block, off, local, size uint64) error {
	stage := make([]byte, min(size, stageBytes))
	defer runtime.KeepAlive(stage)
	at := memory.AddrOf(stage)
	for size > 0 {
		now := min(size, stageBytes)
		if kind == fabric.OpWrite {
			if err := n.w.gpu.Copy(at, local, now); err != nil {
				return err
			}
		}
		if err := n.transferNow(kind, pe, b, off, at, now); err != nil {
			return err
		}
		if kind == fabric.OpRead {
			if err := n.w.gpu.Copy(local, at, now); err != nil {
				return err
			}
		}
		off, local, size = off+now, local+now, size-now
	}
	runtime.KeepAlive(stage)
	return nil
}

// stageBytes go at a time where memory of a GPU is staged.
const stageBytes = 1 << 20

// piece is the length of op at which the provider is best.
func (n *wire) piece() uint64 {
	l := &n.info.Limits
	if l.BestOp > 0 {
		return min(l.BestOp, l.MaxMsg)
	}
	return l.MaxMsg
}

// atomic waits for what was there.
func (n *wire) atomic(pe int, b *block, off uint64, op fabric.AtomicOp, size int, value, compare uint64) (uint64, error) {
	if b.gpu {
		return n.word(pe, b, off, op, size, value)
	}
	kind := fabric.OpFetchAtomic
	if op >= fabric.AtomicCSwap {
		kind = fabric.OpCompareAtomic
	}
	w := newWaiter()
	return n.wait(w, pe, n.modify(kind, pe, b, off, op, size, value, compare, w))
}

// update does not wait.
func (n *wire) update(pe int, b *block, off uint64, op fabric.AtomicOp, size int, value uint64) error {
	if b.gpu {
		_, err := n.word(pe, b, off, op, size, value)
		return err
	}
	return n.modify(fabric.OpAtomic, pe, b, off, op, size, value, 0, nil)
}

// word does what can be done to a word of a GPU that only a network reaches: no CPU there has atomics on it.
func (n *wire) word(pe int, b *block, off uint64, op fabric.AtomicOp, size int, value uint64) (uint64, error) {
	raw := make([]byte, 16)
	at := arena.RoundUp(memory.AddrOf(raw), 8)
	defer runtime.KeepAlive(raw)
	switch op {
	case fabric.AtomicRead:
		err := n.getNow(pe, b, off, at, uint64(size))
		return access.LoadWord(at, size), err
	case fabric.AtomicWrite:
		access.StoreWord(at, size, value)
		return 0, n.putNow(pe, b, off, at, uint64(size))
	}
	return 0, fmt.Errorf("atomics on the memory of a GPU that only provider %s reaches, but for set and fetch: %w", n.info.Provider, errors.ErrUnsupported)
}

// modify queues an atomic of any kind.
func (n *wire) modify(kind fabric.OpKind, pe int, b *block, off uint64, op fabric.AtomicOp, size int, value, compare uint64, w *waiter) error {
	i, f, err := n.take(pe, kind, w)
	if err != nil {
		return err
	}
	bytes := uint64(size)
	f.size = size
	f.atomic = fabric.Atomic{Op: op, Type: fabric.Uint64}
	if size == 4 {
		f.atomic.Type = fabric.Uint32
	}
	access.StoreWord(f.at+operandAt, size, value)
	if kind == fabric.OpCompareAtomic {
		access.StoreWord(f.at+compareAt, size, compare)
		f.atomic.Compare = fabric.Seg{Addr: f.at + compareAt, Len: bytes}
	}
	if kind != fabric.OpAtomic {
		f.atomic.Result = fabric.Seg{Addr: f.at + resultAt, Len: bytes}
	}
	return n.launch(i, fabric.Op{Seg: fabric.Seg{Addr: f.at + operandAt, Len: bytes}, RSeg: b.reach.Load().remoteSeg(pe, off, bytes), Atomic: &f.atomic})
}
