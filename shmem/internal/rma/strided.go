// SPDX-License-Identifier: MIT

package rma

import (
	"fmt"

	"mori/shmem/internal/access"
	"mori/shmem/internal/heap"
)

// IPut copies nelems elements of elem bytes from src, any memory of this process, to the symmetric
// address dest of PE pe. sst and dst are the strides in elements; 1 means no gaps. Elements are
// copied in order. src may be reused when IPut returns.
func (r *RMA) IPut(dest, src uint64, dst, sst int64, nelems, elem uint64, pe int) error {
	err := r.strided(true, dest, src, dst, sst, nelems, elem, pe)
	if err != nil {
		return stridedError("iput", dest, src, dst, sst, nelems, elem, pe, err)
	}
	return nil
}

// IGet is IPut in the other direction: from the symmetric address src of PE pe to dest, any memory
// of this process.
func (r *RMA) IGet(dest, src uint64, dst, sst int64, nelems, elem uint64, pe int) error {
	err := r.strided(false, src, dest, sst, dst, nelems, elem, pe)
	if err != nil {
		return stridedError("iget", dest, src, dst, sst, nelems, elem, pe, err)
	}
	return nil
}

// strided moves elements between the symmetric address sym of PE pe and local, with a stride for
// each; to the PE, if put.
func (r *RMA) strided(put bool, sym, local uint64, symStride, localStride int64, nelems, elem uint64, pe int) error {
	symSpan, err := access.Span(symStride, nelems, elem)
	if err != nil {
		return err
	}
	localSpan, err := access.Span(localStride, nelems, elem)
	if err != nil {
		return err
	}
	b, off, err := r.far(sym, local, symSpan, pe)
	if err != nil || nelems == 0 {
		return err
	}
	if err = checkLocal(local, localSpan); err != nil {
		return err
	}
	symStep, localStep := uint64(symStride)*elem, uint64(localStride)*elem
	at := b.At(pe)
	switch {
	case at == 0:
		return r.stridedNet(put, b, off, local, symStep, localStep, nelems, elem, pe)
	case put:
		err = b.Mem.MoveStrided(at+off, symStep, local, localStep, elem, nelems)
		r.wake.WakeHeap(pe)
	default:
		err = b.Mem.MoveStrided(local, localStep, at+off, symStep, elem, nelems)
	}
	return err
}

// stridedNet is strided over the network, one transfer per element, or one for all if there are no
// gaps.
func (r *RMA) stridedNet(put bool, b *heap.Block, off, local, symStep, localStep, nelems, elem uint64, pe int) error {
	if symStep == elem && localStep == elem {
		nelems, elem = 1, nelems*elem
	}
	for ; nelems > 0; nelems-- {
		var err error
		if put {
			err = r.net.Put(pe, b.Regions(), off, local, elem)
		} else {
			err = r.net.Get(pe, b.Regions(), off, local, elem)
		}
		if err != nil {
			return err
		}
		off, local = off+symStep, local+localStep
	}
	return r.order.Drain()
}

func stridedError(act string, dest, src uint64, dst, sst int64, nelems, elem uint64, pe int, err error) error {
	return fmt.Errorf("%s %d elements of %d bytes from %#x, stride %d, to %#x, stride %d, PE %d: %w", act, nelems, elem, src, sst, dest, dst, pe, err)
}
