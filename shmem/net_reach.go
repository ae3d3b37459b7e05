// SPDX-License-Identifier: MIT

package shmem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"mori/core"
	"mori/core/fabric"
	"mori/shmem/internal/access"
)

// A reach is how PEs come to a block by the network: by regions, one behind the other, of which a block that grows gets one more each time.
// They begin and end at the same offsets on all PEs. A NIC pins a region as it is registered, so there must be memory behind all of it. It is
// replaced, never changed, once others see it.
type reach struct {
	ends   []uint64    // where each region ends; it begins where the one before ends
	own    []fabric.MR // this PE's
	theirs [][]remote  // by PE; of a PE that maps the block there are none
}

// A remote is a region of another PE as the network names it.
type remote struct {
	key, base uint64
	mr        fabric.RemoteMR // whose they are
}

// at is which region has the byte at off, and how many bytes it has from there on.
func (r *reach) at(off uint64) (i int, left uint64) {
	for i < len(r.ends)-1 && off >= r.ends[i] {
		i++
	}
	return i, r.ends[i] - off
}

// begin is where region i begins.
func (r *reach) begin(i int) uint64 {
	if i == 0 {
		return 0
	}
	return r.ends[i-1]
}

// remoteSeg names size bytes at off of PE pe, which are in one region.
func (r *reach) remoteSeg(pe int, off, size uint64) fabric.RSeg {
	i, _ := r.at(off)
	to := &r.theirs[pe][i]
	return fabric.RSeg{Addr: to.base + off - r.begin(i), Len: size, Key: to.key}
}

// retract closes the last region, which nobody has used.
func (r *reach) retract() error {
	if r == nil {
		return nil
	}
	last := len(r.own) - 1
	errs := []error{r.own[last].Close()}
	for _, regions := range r.theirs {
		if len(regions) > last {
			errs = append(errs, regions[last].mr.Close())
		}
	}
	return errors.Join(errs...)
}

// close closes all.
func (r *reach) close() error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, mr := range r.own {
		errs = append(errs, mr.Close())
	}
	for _, regions := range r.theirs {
		for _, to := range regions {
			errs = append(errs, to.mr.Close())
		}
	}
	return errors.Join(errs...)
}

// extend registers what this PE's part of b has up to size and is in no region yet, and adds to o what the others need to find it. What it
// returns is the reach that b gets when they all have.
func (n *wire) extend(b *block, size uint64, o *offer) (*reach, error) {
	wider := &reach{theirs: make([][]remote, n.w.pes.N)}
	from := uint64(0)
	if r := b.reach.Load(); r != nil {
		wider.ends, wider.own = slices.Clone(r.ends), slices.Clone(r.own)
		for pe, regions := range r.theirs {
			wider.theirs[pe] = slices.Clone(regions)
		}
		from = r.ends[len(r.ends)-1]
	}
	buffer := fabric.Buffer{Addr: b.base + from, Len: size - from}
	if b.gpu {
		buffer.Kind, buffer.Device = access.KindOf(n.w.gpu.Device), n.w.gpu.Device.Ordinal
	}
	mr, err := n.register(buffer, fabric.AccessRemoteRead|fabric.AccessRemoteWrite)
	if err != nil {
		return nil, err
	}
	wider.ends, wider.own = append(wider.ends, size), append(wider.own, mr)
	o.Key = mr.Raw()
	return wider, nil
}

// find makes the last region of PE pe known here.
func (n *wire) find(r *reach, pe int, raw []byte) error {
	mr, err := n.dom.Import(raw)
	if err != nil {
		return fmt.Errorf("import the key of PE %d: %w", pe, err)
	}
	r.theirs[pe] = append(r.theirs[pe], remote{key: mr.Key(), base: mr.Base(), mr: mr})
	return nil
}

// register makes a region of memory, and has NICs pin it now: the first put is not to wait for that.
func (n *wire) register(buffer fabric.Buffer, rights fabric.Access) (fabric.MR, error) {
	key := fabric.RegionKey{ID: n.w.nextKey.Add(1) - 1}
	_, _ = rand.Read(key.Secret[:]) // never fails
	mr, err := n.dom.Reg(buffer, rights, key)
	if err != nil {
		return nil, fmt.Errorf("register %d bytes with %s: %w", buffer.Len, n.info.Provider, err)
	}
	if p, ok := mr.(fabric.Prefetcher); ok && core.Pins(n.info.Provider) {
		if err := p.Prefetch(); err != nil { // its ops go another way, as the provider's log says
			n.unpinned.CompareAndSwap(nil, &err)
		}
	}
	return mr, nil
}
