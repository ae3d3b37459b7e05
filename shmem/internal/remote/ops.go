// SPDX-License-Identifier: MIT

package remote

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
	"mori/shmem/internal/peers"
)

// Put queues a transfer of size bytes. The local bytes must not change until Quiet.
func (n *Network) Put(pe int, r *Regions, off, src, size uint64) error {
	return n.transfer(fabric.OpWrite, pe, r, off, src, size, nil)
}

// Get is Put in the other direction.
func (n *Network) Get(pe int, r *Regions, off, dst, size uint64) error {
	return n.transfer(fabric.OpRead, pe, r, off, dst, size, nil)
}

// PutNow is Put that returns when src may be reused. It copies short puts, and waits for longer
// ones.
func (n *Network) PutNow(pe int, r *Regions, off, src, size uint64) error {
	if _, left := r.at(off); size > min(bounceBytes, left) {
		return n.transferNow(fabric.OpWrite, pe, r, off, src, size)
	}
	i, f, err := n.ops.acquire(pe, fabric.OpWrite, nil)
	if err != nil {
		return err
	}
	if err = n.copyIn(f.at, src, size); err != nil {
		n.ops.release(i)
		return err
	}
	return n.submit(i, fabric.Op{Seg: fabric.Seg{Addr: f.at, Len: size}, RSeg: r.remoteSeg(pe, off, size)})
}

// GetNow is Get that returns when the bytes have arrived.
func (n *Network) GetNow(pe int, r *Regions, off, dst, size uint64) error {
	return n.transferNow(fabric.OpRead, pe, r, off, dst, size)
}

func (n *Network) transferNow(kind fabric.OpKind, pe int, r *Regions, off, local, size uint64) error {
	w := newWaiter()
	_, err := n.ops.wait(w, pe, n.transfer(kind, pe, r, off, local, size, w))
	return err
}

// transfer queues size bytes in pieces. If w is not nil, it waits for them.
func (n *Network) transfer(kind fabric.OpKind, pe int, r *Regions, off, local, size uint64, w *waiter) error {
	end, err := n.local(local, size)
	if err != nil {
		return err
	}
	if end.staged {
		return n.transferStaged(kind, pe, r, off, local, size)
	}
	piece := n.piece()
	for size > 0 {
		_, left := r.at(off)
		desc, here := end.desc(local)
		now := min(size, piece, left, here)
		i, _, err := n.ops.acquire(pe, kind, w)
		if err != nil {
			return err
		}
		if err = n.submit(i, fabric.Op{Seg: fabric.Seg{Addr: local, Len: now, MR: desc}, RSeg: r.remoteSeg(pe, off, now)}); err != nil {
			return err
		}
		off, local, size = off+now, local+now, size-now
	}
	return nil
}

// copyIn copies size bytes of user memory to memory of this process.
func (n *Network) copyIn(to, src, size uint64) error {
	if n.cfg.GPU != nil {
		return n.cfg.GPU.Move(to, src, size)
	}
	return access.Host{}.Move(to, src, size)
}

// A localEnd describes local memory to the provider.
type localEnd struct {
	// sym is the registered memory, if the provider needs it: for GPU memory, and for all memory if
	// NICs carry the bytes. Otherwise it is nil.
	sym    *Regions
	staged bool // the provider does not support the memory
}

// desc returns the descriptor of the memory at addr, and the number of bytes that it covers.
func (e *localEnd) desc(addr uint64) (desc fabric.MRDesc, left uint64) {
	if e.sym == nil {
		return 0, math.MaxUint64
	}
	i, left := e.sym.at(addr - e.sym.Base)
	return e.sym.own[i].Desc(), left
}

// local describes local memory. GPU memory outside of the heap has to be staged.
func (n *Network) local(addr, size uint64) (e localEnd, err error) {
	if n.cfg.GPU != nil || n.ops.region != nil {
		if r := n.cfg.Local(addr, size); r != nil && (r.OnGPU || n.ops.region != nil) {
			return localEnd{sym: r}, nil
		}
	}
	if n.cfg.GPU != nil {
		p, err := device.Lookup(addr)
		if err != nil {
			return e, err
		}
		if p.Kind == device.OnDevice {
			return localEnd{staged: true}, n.cfg.GPU.Check(addr, size)
		}
	}
	if !memory.Mapped(addr, size) { // an access to unmapped memory could break the connection
		return e, fmt.Errorf("the local memory is not mapped: %w", peers.ErrInvalid)
	}
	return e, nil
}

// transferStaged copies through host memory, and waits for it.
func (n *Network) transferStaged(kind fabric.OpKind, pe int, r *Regions, off, local, size uint64) error {
	stage := make([]byte, min(size, stageBytes))
	defer runtime.KeepAlive(stage)
	at := memory.AddrOf(stage)
	for size > 0 {
		now := min(size, stageBytes)
		if kind == fabric.OpWrite {
			if err := n.cfg.GPU.Copy(at, local, now); err != nil {
				return err
			}
		}
		if err := n.transferNow(kind, pe, r, off, at, now); err != nil {
			return err
		}
		if kind == fabric.OpRead {
			if err := n.cfg.GPU.Copy(local, at, now); err != nil {
				return err
			}
		}
		off, local, size = off+now, local+now, size-now
	}
	runtime.KeepAlive(stage)
	return nil
}

// stageBytes is the size of a piece of staged GPU memory.
const stageBytes = 1 << 20

// Atomic applies op to the word of size bytes at off, after puts before a fence, and returns its
// previous value. AtomicCSwap stores value if the word equals compare.
func (n *Network) Atomic(pe int, r *Regions, off uint64, op fabric.AtomicOp, size int, value, compare uint64) (uint64, error) {
	if r.OnGPU {
		return n.word(pe, r, off, op, size, value)
	}
	kind := fabric.OpFetchAtomic
	if op >= fabric.AtomicCSwap {
		kind = fabric.OpCompareAtomic
	}
	w := newWaiter()
	return n.ops.wait(w, pe, n.modify(kind, pe, r, off, op, size, value, compare, w))
}

// Update queues an atomic without a result.
func (n *Network) Update(pe int, r *Regions, off uint64, op fabric.AtomicOp, size int, value uint64) error {
	if r.OnGPU {
		_, err := n.word(pe, r, off, op, size, value)
		return err
	}
	return n.modify(fabric.OpAtomic, pe, r, off, op, size, value, 0, nil)
}

// word executes the ops that are possible on a GPU word behind a network, where no CPU can execute
// atomics.
func (n *Network) word(pe int, r *Regions, off uint64, op fabric.AtomicOp, size int, value uint64) (uint64, error) {
	raw := make([]byte, 16)
	at := arena.RoundUp(memory.AddrOf(raw), 8)
	defer runtime.KeepAlive(raw)
	switch op {
	case fabric.AtomicRead:
		err := n.GetNow(pe, r, off, at, uint64(size))
		return access.LoadWord(at, size), err
	case fabric.AtomicWrite:
		access.StoreWord(at, size, value)
		return 0, n.PutNow(pe, r, off, at, uint64(size))
	}
	return 0, fmt.Errorf("GPU memory over provider %s supports only the atomics set and fetch: %w", n.info.Provider, errors.ErrUnsupported)
}

// modify queues any atomic.
func (n *Network) modify(kind fabric.OpKind, pe int, r *Regions, off uint64, op fabric.AtomicOp, size int, value, compare uint64, w *waiter) error {
	i, f, err := n.ops.acquire(pe, kind, w)
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
	return n.submit(i, fabric.Op{Seg: fabric.Seg{Addr: f.at + operandAt, Len: bytes}, RSeg: r.remoteSeg(pe, off, bytes), Atomic: &f.atomic})
}
