// SPDX-License-Identifier: MIT

package team

import (
	"fmt"
	"math/bits"

	"mori/shmem/internal/access"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
)

// A copier moves the data of collective calls. First all members join: then all arguments are valid
// and equal, and all sources are ready. Each member reads from mapped members and writes to the
// others. At the end all join again: sources may be changed, and all writes have arrived.
type copier struct{ *barrier }

// operands is the symmetric memory of a collective call.
type operands struct {
	dest, src       *heap.Block
	destOff, srcOff uint64
}

// mem accesses both.
func (o *operands) mem() access.Memory {
	if o.dest != nil {
		return o.dest.Mem
	}
	return o.src.Mem
}

// operands finds the memory of a collective call: n bytes at dest and m bytes at src. They must not
// overlap, but may be equal if same is set. With length 0 it does not check the address.
func (t *Team) operands(dest, n, src, m uint64, same bool) (o operands, err error) {
	if n > 0 {
		if o.dest, o.destOff, err = t.env.Locate(dest, n); err != nil {
			return o, fmt.Errorf("destination: %w", err)
		}
	}
	if m > 0 {
		if o.src, o.srcOff, err = t.env.Locate(src, m); err != nil {
			return o, fmt.Errorf("source: %w", err)
		}
	}
	if n > 0 && m > 0 && o.dest.OnGPU != o.src.OnGPU {
		return o, fmt.Errorf("one of %#x and %#x is on a GPU, the other in host memory: %w", dest, src, peers.ErrInvalid)
	}
	if n > 0 && m > 0 && dest < src+m && src < dest+n && !(same && dest == src) {
		return o, fmt.Errorf("%d bytes at %#x and %d at %#x overlap: %w", n, dest, m, src, peers.ErrInvalid)
	}
	return o, nil
}

// times multiplies sizes. On overflow the error wraps peers.ErrInvalid.
func times(n, size uint64) (uint64, error) {
	over, product := bits.Mul64(n, size)
	if over != 0 || product > 1<<62 {
		return 0, fmt.Errorf("%d times %d bytes: %w", n, size, peers.ErrInvalid)
	}
	return product, nil
}

// together runs one collective call: the members join, work, and join again. bad is why this PE's
// arguments are invalid.
func (t *Team) together(c *teamCall, bad error, work func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.join(c, bad)
	if err == nil {
		err = t.finish(work())
	}
	if err != nil {
		return t.failed(c, err)
	}
	return nil
}

// finish ends the part of a call that accesses memory.
func (t *Team) finish(err error) error {
	if err != nil {
		return t.spoil(err) // the others wait for this PE until they time out or it dies
	}
	return t.next()
}

func (t *Team) failed(c *teamCall, err error) error {
	act := *c // c itself stays on the stack
	act.kind &^= refused
	return fmt.Errorf("%v of %v: %w", act, t, err)
}

// pull reads n bytes at off of a member's part of b. If it is not mapped, they arrive by drain.
func (t *copier) pull(dst uint64, rank int, b *heap.Block, off, n uint64) error {
	pe := t.members[rank]
	if at := b.At(pe); at != 0 {
		return b.Mem.Copy(dst, at+off, n)
	}
	return t.env.Net.Get(pe, b.Regions(), off, dst, n)
}

// push writes n bytes to off of a member's part of b. If it is not mapped, src must not change
// before drain.
func (t *copier) push(src uint64, rank int, b *heap.Block, off, n uint64) error {
	pe := t.members[rank]
	if at := b.At(pe); at != 0 {
		return b.Mem.Copy(at+off, src, n)
	}
	return t.env.Net.Put(pe, b.Regions(), off, src, n)
}

// spread copies the parts of members low to high to all members: a member's source goes to the
// offset of at in every destination. Between hosts each part is sent once, to one member; the other
// members of that host read it there.
//
// Within a host, all members read a single part at once. If there are several, each is written by
// its owner, which has it in its cache.
func (t *copier) spread(o *operands, low, high int, at func(rank int) (off, n uint64)) error {
	own := o.dest.Base + o.destOff
	if t.me >= low && t.me < high {
		if off, n := at(t.me); n > 0 {
			if err := t.handOut(o, off, n, high-low > 1); err != nil {
				return err
			}
		}
	} else if high-low == 1 && t.groupOf[low] == t.group {
		off, n := at(low)
		if err := t.pull(own+off, low, o.src, o.srcOff, n); err != nil {
			return err
		}
	}
	if len(t.groups) == 1 && !t.env.Split {
		return nil
	}
	if err := t.env.Drain(); err != nil || len(t.groups) == 1 {
		return err
	}
	if err := t.next(); err != nil {
		return err
	}
	for i := range high - low {
		rank := low + (t.me+i)%(high-low) // start at different members
		from := t.receiverIn(t.group, rank)
		if off, n := at(rank); n > 0 && t.groupOf[rank] != t.group && from != t.me {
			if err := t.pull(own+off, from, o.dest, o.destOff+off, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// handOut copies this PE's n source bytes to off in its own destination, in those of the receivers
// on other hosts, and, if near is set, in those of its host.
func (t *copier) handOut(o *operands, off, n uint64, near bool) error {
	src := o.src.Base + o.srcOff
	if own := o.dest.Base + o.destOff + off; own != src {
		if err := o.mem().Copy(own, src, n); err != nil {
			return err
		}
	}
	for group, ranks := range t.groups {
		if group != t.group {
			if err := t.push(src, t.receiverIn(group, t.me), o.dest, o.destOff+off, n); err != nil {
				return err
			}
			continue
		}
		for i := range ranks {
			rank := ranks[(t.me+i)%len(ranks)] // start at different members
			if near && rank != t.me {
				if err := t.push(src, rank, o.dest, o.destOff+off, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
