// SPDX-License-Identifier: MIT

package shm

import (
	"bytes"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/local"
)

// samplePiece is how many bytes are compared at a time.
const samplePiece = 64 << 10

// A sampler has the memory for one comparison: the lists of a piece, and the other side's bytes.
type sampler struct {
	slice *slice
	there []byte
	mine  []byte // a copy of this side's
	into  []sys.Iovec
	here  []sys.Iovec
}

var samplers = sync.Pool{New: func() any {
	return &sampler{slice: newSlice(), there: make([]byte, samplePiece), mine: make([]byte, samplePiece), into: make([]sys.Iovec, 1)}
}}

// sampled compares both ends of every Options.Sample-th op after its copy, piece by piece. If they
// differ, it ends the op with ErrCRC. They also differ if the owner changes the memory in the
// meantime, or if two ops write to it at once. Written bytes are read back even if the region does
// not grant reads.
func (c *copies) sampled(op *fabric.Op, n uint64, l *regionGrant, err error) error {
	every := c.sample.every
	if err != nil || every == 0 || c.sample.ops.Add(1)%every != 0 {
		return err
	}
	p := samplers.Get().(*sampler)
	defer samplers.Put(p)
	for w := newWalk(op, n, l.Region.base); w.left > 0; {
		w.next(p.slice, samplePiece)
		if err := c.compare(op, l, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *copies) compare(op *fabric.Op, l *regionGrant, p *sampler) error {
	s, got := p.slice, p.there[:p.slice.n]
	p.here = append(p.here[:0], s.local...)
	p.into[0] = sys.Iovec{Addr: sys.AddrOf(got), Len: s.n}
	s.local = append(s.local[:0], p.into...)
	if err := c.copySlice(fabric.OpRead, l, s); err != nil {
		return err
	}
	for _, v := range p.here {
		mine := p.mine[:v.Len]
		if vm.Load(mine, v.Addr) != nil || !bytes.Equal(mine, got[:v.Len]) {
			return local.OpFault(fabric.ErrCRC, "%v of %d bytes, region %d of %s: the two sides differ", op.Kind, op.Len(), l.Key.ID, c.path.ep.Peer())
		}
		got = got[v.Len:]
	}
	return nil
}
