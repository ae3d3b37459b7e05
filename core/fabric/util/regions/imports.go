// SPDX-License-Identifier: MIT

package regions

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
)

// Imports holds the peers' regions that a domain has imported, by the handles that ops pass in
// RSeg.Key.
type Imports struct {
	mu    sync.Mutex
	free  []uint32 // slots for reuse
	count int

	slots atomic.Pointer[[]*importSlot] // replaced when it grows
}

// An importSlot holds one region after another. gen counts them.
type importSlot struct {
	gen uint32 // of the last user; under Imports.mu
	cur atomic.Pointer[Remote]
}

// NewImports makes an empty table.
func NewImports() *Imports {
	t := &Imports{}
	t.slots.Store(&[]*importSlot{})
	return t
}

// Import adds the region that raw, the result of RegionKey.Raw, describes.
func (t *Imports) Import(raw []byte) (*Remote, error) {
	key, size, err := fabric.ParseRegionKey(raw)
	if err != nil {
		return nil, fmt.Errorf("import region: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := *t.slots.Load()
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(slots)))
		slots = append(slices.Clone(slots), &importSlot{})
		t.slots.Store(&slots)
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	s := slots[i]
	s.gen++
	r := &Remote{Region: key, Size: size, table: t, handle: uint64(s.gen)<<32 | uint64(i)}
	s.cur.Store(r)
	t.count++
	return r, nil
}

// Lookup returns the region of a handle, or nil if the handle is not valid (any more). It takes no
// lock.
func (t *Imports) Lookup(handle uint64) *Remote {
	slots := *t.slots.Load()
	i := handle & 0xffffffff
	if i >= uint64(len(slots)) {
		return nil
	}
	if r := slots[i].cur.Load(); r != nil && r.handle == handle {
		return r
	}
	return nil
}

// Len returns the number of imported regions.
func (t *Imports) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// A Remote is a peer's region, addressed by offset. Its size comes from the key and is not
// verified; only the target knows it.
type Remote struct {
	Region fabric.RegionKey
	Size   uint64

	table  *Imports
	handle uint64
}

var _ fabric.RemoteMR = (*Remote)(nil)

// Key returns the handle.
func (r *Remote) Key() uint64 { return r.handle }

// Base returns 0, since regions are addressed by offset.
func (r *Remote) Base() uint64 { return 0 }

// Close invalidates the handle. Ops that have looked it up before are not affected.
func (r *Remote) Close() error {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	i := r.handle & 0xffffffff
	if (*t.slots.Load())[i].cur.CompareAndSwap(r, nil) {
		t.free = append(t.free, uint32(i))
		t.count--
	}
	return nil
}
