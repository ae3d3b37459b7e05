// SPDX-License-Identifier: MIT

package team

import (
	"fmt"

	"mori/shmem/internal/access"
)

// AllToAll sends the i-th n bytes at src of each member to member i, which receives them at dest in
// member order (shmem_alltoallmem). dest and src are symmetric and must not overlap.
func (t *Team) AllToAll(dest, src, n uint64) error {
	if err := t.usable(); err != nil {
		return fmt.Errorf("alltoall of %v: %w", t, err)
	}
	all, bad := times(n, uint64(len(t.members)))
	var o operands
	if bad == nil {
		o, bad = t.operands(dest, all, src, all, false)
	}
	c := teamCall{kind: teamAllToAll, args: [recordLen - 1]uint64{o.destOff, o.srcOff, n}}
	return t.together(&c, bad, func() error {
		if n == 0 {
			return nil
		}
		return t.trade(&o, n)
	})
}

// trade writes to members of other hosts, and reads from those of this host.
func (t *copier) trade(o *operands, n uint64) (err error) {
	dest, src, me := o.dest.Base+o.destOff, o.src.Base+o.srcOff, uint64(t.me)
	for i := range t.members {
		rank := (t.me + i) % len(t.members) // start at different members
		if off := uint64(rank) * n; t.groupOf[rank] == t.group {
			err = t.pull(dest+off, rank, o.src, o.srcOff+me*n, n)
		} else {
			err = t.push(src+off, rank, o.dest, o.destOff+me*n, n)
		}
		if err != nil {
			return err
		}
	}
	return t.env.Drain()
}

// AllToAllS is AllToAll of nelems elements of elem bytes for each member, with stride sst at src
// and dst at dest (shmem_alltoalls).
func (t *Team) AllToAllS(dest, src uint64, dst, sst int64, nelems, elem uint64) error {
	if err := t.usable(); err != nil {
		return fmt.Errorf("alltoalls of %v: %w", t, err)
	}
	o, bad := t.stridedOperands(dest, src, dst, sst, nelems, elem)
	c := teamCall{kind: teamAllToAllS, args: [recordLen - 1]uint64{o.destOff, o.srcOff, nelems, elem, uint64(dst), uint64(sst)}}
	return t.together(&c, bad, func() error {
		if nelems == 0 {
			return nil
		}
		return t.tradeStrided(&o, strides{dst: uint64(dst) * elem, sst: uint64(sst) * elem, nelems: nelems, elem: elem})
	})
}

// stridedOperands finds the memory from the first to the last element.
func (t *Team) stridedOperands(dest, src uint64, dst, sst int64, nelems, elem uint64) (o operands, err error) {
	all, err := times(nelems, uint64(len(t.members)))
	if err != nil {
		return o, err
	}
	n, err := access.Span(dst, all, elem)
	if err != nil {
		return o, err
	}
	m, err := access.Span(sst, all, elem)
	if err != nil {
		return o, err
	}
	return t.operands(dest, n, src, m, false)
}

// strides describes what AllToAllS moves for one member; dst and sst are in bytes.
type strides struct{ dst, sst, nelems, elem uint64 }

func (t *copier) tradeStrided(o *operands, s strides) error {
	dest, src, me := o.dest.Base+o.destOff, o.src.Base+o.srcOff, uint64(t.me)*s.nelems
	for i := range t.members {
		rank := (t.me + i) % len(t.members)
		first, pe := uint64(rank)*s.nelems, t.members[rank]
		if at := o.src.At(pe); at != 0 && t.groupOf[rank] == t.group {
			if err := o.mem().MoveStrided(dest+first*s.dst, s.dst, at+o.srcOff+me*s.sst, s.sst, s.elem, s.nelems); err != nil {
				return err
			}
			continue
		}
		for k := range s.nelems {
			if err := t.push(src+(first+k)*s.sst, rank, o.dest, o.destOff+(me+k)*s.dst, s.elem); err != nil {
				return err
			}
		}
	}
	return t.env.Drain()
}
