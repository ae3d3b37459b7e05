// SPDX-License-Identifier: MIT

package remote

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"mori/core"
	"mori/core/device"
	"mori/core/fabric"
	"mori/shmem/internal/access"
)

// A Regions is how PEs reach a block over the network: by consecutive regions, one more each time
// the block grows. They have the same offsets on all PEs. A NIC pins a region when it is
// registered, so all of it must be backed by memory. A Regions that others see is replaced, never
// changed.
type Regions struct {
	Base   uint64      // start of this PE's part of the block
	OnGPU  bool        // the block is on GPUs
	ends   []uint64    // end offset of each region; it starts where the previous one ends
	own    []fabric.MR // this PE's regions
	theirs [][]region  // by PE; empty for a PE that maps the block
}

// A region is another PE's region as the network addresses it.
type region struct {
	key, base uint64
	mr        fabric.RemoteMR // by PE
}

// at returns which region has the byte at off, and how many bytes it has from there on.
func (r *Regions) at(off uint64) (i int, left uint64) {
	for i < len(r.ends)-1 && off >= r.ends[i] {
		i++
	}
	return i, r.ends[i] - off
}

// begin returns the offset of region i.
func (r *Regions) begin(i int) uint64 {
	if i == 0 {
		return 0
	}
	return r.ends[i-1]
}

// remoteSeg returns the segment of size bytes at off of PE pe, which lie in one region.
func (r *Regions) remoteSeg(pe int, off, size uint64) fabric.RSeg {
	i, _ := r.at(off)
	to := &r.theirs[pe][i]
	return fabric.RSeg{Addr: to.base + off - r.begin(i), Len: size, Key: to.key}
}

// Retract closes the last region, which no operation has used.
func (r *Regions) Retract() error {
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

// Close closes all regions.
func (r *Regions) Close() error {
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

// Key returns what other PEs need to find this PE's last region.
func (r *Regions) Key() []byte { return r.own[len(r.own)-1].Raw() }

// A registrar registers memory with an endpoint, and imports the regions of other PEs.
type registrar struct {
	*endpoint
	npes     int
	gpu      *device.Device        // for blocks on GPUs
	nextKey  atomic.Uint64         // most bytes of a region
	unpinned atomic.Pointer[error] // the first reason why a NIC could not register a region
}

// Extend returns r with one more region, for this PE's part of a block between the end of r and
// size. If r is nil, the block is new and starts at base. The others find the region by Key and
// Import.
func (g *registrar) Extend(r *Regions, base, size uint64, onGPU bool) (*Regions, error) {
	wider := &Regions{Base: base, OnGPU: onGPU, theirs: make([][]region, g.npes)}
	from := uint64(0)
	if r != nil {
		wider.ends, wider.own = slices.Clone(r.ends), slices.Clone(r.own)
		for pe, regions := range r.theirs {
			wider.theirs[pe] = slices.Clone(regions)
		}
		from = r.ends[len(r.ends)-1]
	}
	buffer := fabric.Buffer{Addr: base + from, Len: size - from}
	if onGPU {
		d := g.gpu
		buffer.Kind, buffer.Device = access.KindOf(d), d.Ordinal
	}
	mr, err := g.Register(buffer, fabric.AccessRemoteRead|fabric.AccessRemoteWrite)
	if err != nil {
		return nil, err
	}
	wider.ends, wider.own = append(wider.ends, size), append(wider.own, mr)
	return wider, nil
}

// Import adds the last region of PE pe, by its Key, to r.
func (g *registrar) Import(r *Regions, pe int, raw []byte) error {
	mr, err := g.dom.Import(raw)
	if err != nil {
		return fmt.Errorf("import the key of PE %d: %w", pe, err)
	}
	r.theirs[pe] = append(r.theirs[pe], region{key: mr.Key(), base: mr.Base(), mr: mr})
	return nil
}

// Register registers memory, and pins it with NICs now, so that the first put does not wait for it.
func (g *registrar) Register(buffer fabric.Buffer, rights fabric.Access) (fabric.MR, error) {
	key := fabric.RegionKey{ID: g.nextKey.Add(1) - 1}
	_, _ = rand.Read(key.Secret[:]) // never fails
	mr, err := g.dom.Reg(buffer, rights, key)
	if err != nil {
		return nil, fmt.Errorf("register %d bytes with %s: %w", buffer.Len, g.info.Provider, err)
	}
	if p, ok := mr.(fabric.Prefetcher); ok && core.Pins(g.info.Provider) {
		if err := p.Prefetch(); err != nil { // its ops use another path, as the provider's log says
			g.unpinned.CompareAndSwap(nil, &err)
		}
	}
	return mr, nil
}
