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

// A Regions is how PEs come to a block by the network: by regions, one behind the other, of which a
// block that grows gets one more each time. They begin and end at the same offsets on all PEs. A
// NIC pins a region as it is registered, so there must be memory behind all of it. It is replaced,
// never changed, once others see it.
type Regions struct {
	Base   uint64      // where this PE's part of the block begins
	OnGPU  bool        // the block is on GPUs
	ends   []uint64    // where each region ends; it begins where the one before ends
	own    []fabric.MR // this PE's
	theirs [][]region  // by PE; of a PE that maps the block there are none
}

// A region is a region of another PE as the network names it.
type region struct {
	key, base uint64
	mr        fabric.RemoteMR // whose they are
}

// at is which region has the byte at off, and how many bytes it has from there on.
func (r *Regions) at(off uint64) (i int, left uint64) {
	for i < len(r.ends)-1 && off >= r.ends[i] {
		i++
	}
	return i, r.ends[i] - off
}

// begin is where region i begins.
func (r *Regions) begin(i int) uint64 {
	if i == 0 {
		return 0
	}
	return r.ends[i-1]
}

// remoteSeg names size bytes at off of PE pe, which are in one region.
func (r *Regions) remoteSeg(pe int, off, size uint64) fabric.RSeg {
	i, _ := r.at(off)
	to := &r.theirs[pe][i]
	return fabric.RSeg{Addr: to.base + off - r.begin(i), Len: size, Key: to.key}
}

// Retract closes the last region, which nobody has used.
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

// Close closes all.
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
	gpu      *device.Device        // of blocks on GPUs
	nextKey  atomic.Uint64         // of a region
	unpinned atomic.Pointer[error] // why a NIC did not take some region, the first time
}

// Extend returns r with one more region, for what this PE's part of a block has between the end of
// r and size. A nil r is that of a new block, at base. The others find the region by Key and
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

// Register makes a region of memory, and has NICs pin it now: the first put is not to wait for
// that.
func (g *registrar) Register(buffer fabric.Buffer, rights fabric.Access) (fabric.MR, error) {
	key := fabric.RegionKey{ID: g.nextKey.Add(1) - 1}
	_, _ = rand.Read(key.Secret[:]) // never fails
	mr, err := g.dom.Reg(buffer, rights, key)
	if err != nil {
		return nil, fmt.Errorf("register %d bytes with %s: %w", buffer.Len, g.info.Provider, err)
	}
	if p, ok := mr.(fabric.Prefetcher); ok && core.Pins(g.info.Provider) {
		if err := p.Prefetch(); err != nil { // its ops go another way, as the provider's log says
			g.unpinned.CompareAndSwap(nil, &err)
		}
	}
	return mr, nil
}
