// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/memory"
)

func (n *wire) put(pe int, b *block, off, src, size uint64) error {
	return n.transfer(fabric.OpWrite, pe, b, off, src, size, nil)
}

func (n *wire) get(pe int, b *block, off, dst, size uint64) error {
	return n.transfer(fabric.OpRead, pe, b, off, dst, size, nil)
}

// putNow copies what is short, and waits for the rest.
func (n *wire) putNow(pe int, b *block, off, src, size uint64) error {
	if size > bounceBytes {
		return n.transferNow(fabric.OpWrite, pe, b, off, src, size)
	}
	i, f, err := n.take(pe, fabric.OpWrite, nil)
	if err != nil {
		return err
	}
	if err = memory.Move(f.at, src, size); err != nil {
		n.land(i)
		return fmt.Errorf("the local memory is not there: %w (%w)", ErrInvalid, err)
	}
	return n.launch(i, fabric.Op{Seg: fabric.Seg{Addr: f.at, Len: size}, RSeg: b.remoteSeg(pe, off, size)})
}

func (n *wire) getNow(pe int, b *block, off, dst, size uint64) error {
	return n.transferNow(fabric.OpRead, pe, b, off, dst, size)
}

// remoteSeg names size bytes at off of PE pe.
func (b *block) remoteSeg(pe int, off, size uint64) fabric.RSeg {
	r := &b.peers[pe].remote
	return fabric.RSeg{Addr: r.base + off, Len: size, Key: r.key}
}

func (n *wire) transferNow(kind fabric.OpKind, pe int, b *block, off, local, size uint64) error {
	w := newWaiter()
	_, err := n.wait(w, pe, n.transfer(kind, pe, b, off, local, size, w))
	return err
}

// transfer queues size bytes in pieces. w, if there is one, waits for them.
func (n *wire) transfer(kind fabric.OpKind, pe int, b *block, off, local, size uint64, w *waiter) error {
	if !memory.Mapped(local, size) { // a transport that stumbles over it may lose its connection
		return fmt.Errorf("the local memory is not there: %w", ErrInvalid)
	}
	piece := n.piece()
	for size > 0 {
		now := min(size, piece)
		i, _, err := n.take(pe, kind, w)
		if err != nil {
			return err
		}
		if err = n.launch(i, fabric.Op{Seg: fabric.Seg{Addr: local, Len: now}, RSeg: b.remoteSeg(pe, off, now)}); err != nil {
			return err
		}
		off, local, size = off+now, local+now, size-now
	}
	return nil
}

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
	kind := fabric.OpFetchAtomic
	if op >= fabric.AtomicCSwap {
		kind = fabric.OpCompareAtomic
	}
	w := newWaiter()
	return n.wait(w, pe, n.modify(kind, pe, b, off, op, size, value, compare, w))
}

// update does not wait.
func (n *wire) update(pe int, b *block, off uint64, op fabric.AtomicOp, size int, value uint64) error {
	return n.modify(fabric.OpAtomic, pe, b, off, op, size, value, 0, nil)
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
	storeWord(f.at+operandAt, size, value)
	if kind == fabric.OpCompareAtomic {
		storeWord(f.at+compareAt, size, compare)
		f.atomic.Compare = fabric.Seg{Addr: f.at + compareAt, Len: bytes}
	}
	if kind != fabric.OpAtomic {
		f.atomic.Result = fabric.Seg{Addr: f.at + resultAt, Len: bytes}
	}
	return n.launch(i, fabric.Op{Seg: fabric.Seg{Addr: f.at + operandAt, Len: bytes}, RSeg: b.remoteSeg(pe, off, bytes), Atomic: &f.atomic})
}
