// SPDX-License-Identifier: MIT

package team

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/reduceop"
)

// Algorithms of reductions. Small: each member reads all sources and combines them. Large: each
// member combines one part of all sources into its destination, and reads the other parts.
//
// Both combine the sources in member order, so all members get the same bits, equal to those of a
// loop over the sources.

const (
	smallReduce = 2 << 10   // bytes: a third synchronisation costs more than reading everything
	reduceBlock = 16 << 10  // bytes combined at a time: they stay in the L1 cache
	fetchBlock  = 256 << 10 // bytes fetched at a time from each PE whose memory is not mapped
)

// A reducer combines the data of members.
type reducer struct {
	copier
	room    []byte   // scratch memory
	sources []uint64 // addresses of the sources
}

// Reduce combines, element by element, the nelems elements at src of all members, and stores the
// result at dest of all members (shmem_TYPENAME_OP_reduce). dest and src are symmetric, aligned to
// the elements, and equal or disjoint.
//
// Integers wrap. A minimum or maximum with a NaN is NaN. Sums of BFloat16 are computed in Float32
// and rounded once; all other ops on 2-byte floats round after each step.
func (t *Team) Reduce(op reduceop.Op, typ fabric.DataType, dest, src, nelems uint64) error {
	if err := t.usable(); err != nil {
		return fmt.Errorf("reduction of %v: %w", t, err)
	}
	combine, size, applies := reduceop.Of(op, typ)
	var n uint64
	var bad error
	if !applies {
		bad = fmt.Errorf("%v of elements of type %s: %w", op, reduceop.TypeName(typ), peers.ErrInvalid)
	} else {
		n, bad = times(nelems, size)
	}
	var o operands
	if bad == nil && n > 0 && (dest|src)%size != 0 {
		bad = fmt.Errorf("%#x and %#x are not aligned to %d bytes: %w", dest, src, size, peers.ErrInvalid)
	}
	if bad == nil {
		o, bad = t.operands(dest, n, src, n, true)
	}
	c := teamCall{kind: teamReduce, args: [recordLen - 1]uint64{o.destOff, o.srcOff, nelems, uint64(op), uint64(typ)}}
	return t.together(&c, bad, func() error {
		switch {
		case n == 0:
			return nil
		case len(t.members) == 1:
			return o.mem().Copy(o.dest.Base+o.destOff, o.src.Base+o.srcOff, n)
		case n <= smallReduce:
			return t.reduceSmall(combine, &o, size, n)
		}
		return t.reduceParts(combine, &o, size, n)
	})
}

// reduceSmall combines everything on each member. The destination may be the source, so it is
// written after all members have read.
func (t *reducer) reduceSmall(combine reduceop.Func, o *operands, size, n uint64) error {
	result := t.scratch() + resultOff
	if err := t.combine(combine, result, o, o.srcOff, size, n); err != nil {
		return err
	}
	if err := t.next(); err != nil {
		return err
	}
	return o.mem().Copy(o.dest.Base+o.destOff, result, n)
}

// reduceParts combines this PE's part of the elements, and fetches the others. If the destination
// is the source, the result overwrites only the part that no other member reads.
func (t *reducer) reduceParts(combine reduceop.Func, o *operands, size, n uint64) error {
	begin, end := t.part(t.me, n)
	for off := begin; off < end; off += fetchBlock {
		at, now := o.dest.Base+o.destOff+off, min(fetchBlock, end-off)
		if !o.dest.OnGPU {
			if err := t.combine(combine, at, o, o.srcOff+off, size, now); err != nil {
				return err
			}
			continue
		}
		result := t.scratch() + resultOff
		if err := t.combine(combine, result, o, o.srcOff+off, size, now); err != nil {
			return err
		}
		if err := o.dest.Mem.Copy(at, result, now); err != nil {
			return err
		}
	}
	if err := t.next(); err != nil {
		return err
	}
	// Between hosts each part is sent once, to one member; the other members of that host read it
	// there.
	err := t.fetchParts(o, n, func(rank int) int {
		if t.groupOf[rank] == t.group || t.receiverIn(t.group, rank) == t.me {
			return rank
		}
		return t.me
	})
	if err != nil || len(t.groups) == 1 {
		return err
	}
	if err := t.next(); err != nil {
		return err
	}
	return t.fetchParts(o, n, func(rank int) int {
		if t.groupOf[rank] == t.group {
			return t.me
		}
		return t.receiverIn(t.group, rank)
	})
}

// fetchParts reads the members' parts of the result from the members in from. This PE's own part is
// in place.
func (t *reducer) fetchParts(o *operands, n uint64, from func(rank int) int) error {
	for i := range t.members {
		rank := (t.me + i) % len(t.members) // start at different members
		begin, end := t.part(rank, n)
		if source := from(rank); source != t.me && begin < end {
			if err := t.pull(o.dest.Base+o.destOff+begin, source, o.dest, o.destOff+begin, end-begin); err != nil {
				return err
			}
		}
	}
	return t.env.Drain()
}

// part returns which of n bytes a member combines: whole lines, so that no two members write the
// same one, and whole elements of any type.
func (t *reducer) part(rank int, n uint64) (begin, end uint64) {
	lines, members := (n+line-1)/line, uint64(len(t.members))
	return min(n, lines*uint64(rank)/members*line), min(n, lines*uint64(rank+1)/members*line)
}

// combine combines n bytes, at most fetchBlock, at off of all members' sources into dst, which may
// be this PE's own source. It first fetches memory that the CPU cannot load.
func (t *reducer) combine(f reduceop.Func, dst uint64, o *operands, off, size, n uint64) error {
	between := t.scratch()
	fetched, far := between+t.fetchedAt(), uint64(0)
	for rank, pe := range t.members {
		if !o.src.Loads(pe) {
			if err := t.pull(fetched+far*fetchBlock, rank, o.src, off, n); err != nil {
				return err
			}
			far++
		}
	}
	if far > 0 {
		if err := t.env.Drain(); err != nil {
			return err
		}
	}
	for done := uint64(0); done < n; done += reduceBlock {
		sources, far := t.sources[:0], uint64(0)
		for _, pe := range t.members {
			if o.src.Loads(pe) {
				sources = append(sources, o.src.At(pe)+off+done)
			} else {
				sources = append(sources, fetched+far*fetchBlock+done)
				far++
			}
		}
		t.sources = sources
		f(dst+done, between, sources, int(min(reduceBlock, n-done)/size))
	}
	return nil
}

// Layout of scratch memory: a block for intermediate results, one for the result, and one for each
// member whose memory the CPU cannot load.
const resultOff = reduceBlock

// resultLen is the longest result in scratch memory: with a heap on GPUs, all that is fetched at a
// time.
func (t *reducer) resultLen() uint64 {
	if t.env.OnGPU {
		return fetchBlock
	}
	return reduceBlock
}

func (t *reducer) fetchedAt() uint64 { return resultOff + t.resultLen() }

// scratch is this PE's memory for reductions.
func (t *reducer) scratch() uint64 {
	if t.room == nil {
		far := uint64(0)
		for _, pe := range t.members {
			if t.env.OnGPU || t.env.Control.At(pe) == 0 {
				far++
			}
		}
		t.room = make([]byte, t.fetchedAt()+far*fetchBlock)
	}
	return memory.AddrOf(t.room)
}
