// SPDX-License-Identifier: MIT

package rma

import (
	"fmt"

	"mori/shmem/internal/access"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
)

// A SignalOp is how a signal, a word of 8 bytes of symmetric memory, is updated. The numbers are
// upstream's.
type SignalOp int

// The ways to update a signal.
const (
	SignalSet SignalOp = SignalOp(access.AtomicSignalSet)
	SignalAdd SignalOp = SignalOp(access.AtomicSignalAdd)
)

// String returns OpenSHMEM's name.
func (op SignalOp) String() string {
	switch op {
	case SignalSet:
		return "set"
	case SignalAdd:
		return "add"
	}
	return fmt.Sprintf("signal op %d", int(op))
}

// PutSignal puts n bytes like Put, then updates the signal at the symmetric address sig of the same
// PE with value. A PE that sees the signal also sees the bytes. n may be 0.
func (r *RMA) PutSignal(dest, src, n, sig, value uint64, op SignalOp, pe int) error {
	return r.putSignal("put_signal", dest, src, n, sig, value, op, pe, true)
}

// PutSignalNbi is PutSignal that may return before src has been read. Quiet waits for that.
func (r *RMA) PutSignalNbi(dest, src, n, sig, value uint64, op SignalOp, pe int) error {
	return r.putSignal("put_signal_nbi", dest, src, n, sig, value, op, pe, false)
}

func (r *RMA) putSignal(act string, dest, src, n, sig, value uint64, op SignalOp, pe int, wait bool) error {
	b, off, err := r.far(dest, src, n, pe)
	if err == nil {
		err = r.checkSignal(dest, n, sig, op)
	}
	if err == nil {
		err = r.carrySignal(b, off, src, n, sig, value, op, pe, wait)
	}
	if err != nil {
		return fmt.Errorf("%s %d bytes from %#x to %#x, %v of %d at %#x, PE %d: %w", act, n, src, dest, op, value, sig, pe, err)
	}
	return nil
}

// checkSignal checks the signal of a put of n bytes to dest.
func (r *RMA) checkSignal(dest, n, sig uint64, op SignalOp) error {
	if op != SignalSet && op != SignalAdd {
		return fmt.Errorf("want signal op %d or %d: %w", SignalSet, SignalAdd, peers.ErrInvalid)
	}
	if sig&7 != 0 {
		return fmt.Errorf("the signal's address is not aligned: %w", peers.ErrInvalid)
	}
	if sig+8 > dest && sig < dest+n {
		return fmt.Errorf("the signal lies inside the target: %w", peers.ErrInvalid)
	}
	return nil
}

// carrySignal puts n mapped bytes to off in b, and then updates the signal.
func (r *RMA) carrySignal(b *heap.Block, off, src, n, sig, value uint64, op SignalOp, pe int, wait bool) error {
	of, at, err := r.heap.Locate(sig, 8)
	if err != nil {
		return err
	}
	if to := of.At(pe); to != 0 && (n == 0 || b.At(pe) != 0) {
		if n > 0 {
			if err := b.Mem.Move(b.At(pe)+off, src, n); err != nil {
				return err
			}
		}
		if _, err := of.Mem.Atomic(access.AtomicOp(op), 8, to+at, value, 0); err != nil { // orders the stores above before the signal
			return err
		}
		r.wake.WakeHeap(pe)
		return nil
	}
	if n > 0 {
		if err = r.carry(b, off, src, n, pe, wait); err == nil {
			err = r.order.Fence()
		}
		if err != nil {
			return err
		}
	}
	if to := of.At(pe); to != 0 { // only the bytes used the network
		if err = r.order.Drain(); err == nil {
			_, err = of.Mem.Atomic(access.AtomicOp(op), 8, to+at, value, 0)
		}
		return err
	}
	return r.net.Update(pe, of.Regions(), at, access.AtomicOp(op).Fabric(), 8, value)
}

// SignalSet sets the signal at the symmetric address sig of PE pe.
func (r *RMA) SignalSet(sig, value uint64, pe int) error {
	return r.Atomic(access.AtomicSignalSet, 8, sig, value, pe)
}

// SignalAdd adds to the signal at the symmetric address sig of PE pe.
func (r *RMA) SignalAdd(sig, value uint64, pe int) error {
	return r.Atomic(access.AtomicSignalAdd, 8, sig, value, pe)
}
