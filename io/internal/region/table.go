// SPDX-License-Identifier: MIT

package region

import (
	"crypto/subtle"
	"errors"
	"sync"

	"mori/io/internal/descriptor"
)

// A Table has the regions of an engine by id. It does no I/O. Safe for concurrent use; the zero
// value is ready.
type Table struct {
	mu     sync.RWMutex
	all    map[uint32]*Region
	nextID uint32
}

// Add assigns r its id, which is never reused.
func (t *Table) Add(r *Region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[uint32]*Region{}
	}
	r.desc.ID = t.nextID
	t.nextID++
	t.all[r.desc.ID] = r
}

// Remove removes a region from the table. It reports false if the region is not in it.
func (t *Table) Remove(id uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.all[id]
	delete(t.all, id)
	return ok
}

// Granted returns the region with this key, nil if none has it.
func (t *Table) Granted(k descriptor.RegionKey) *Region {
	r := t.get(k.ID)
	if r == nil || subtle.ConstantTimeCompare(k.Secret[:], r.desc.Secret[:]) != 1 {
		return nil
	}
	return r
}

// Of returns the region of the engine named key that d describes. It returns nil if d is foreign,
// deregistered or describes other memory. It compares the id, address, size and incarnation, so a
// copy of the descriptor works.
func (t *Table) Of(d descriptor.Memory, key string) *Region {
	if d.EngineKey != key {
		return nil
	}
	r := t.get(d.ID)
	if r == nil || r.desc.Data != d.Data || r.desc.Size != d.Size ||
		d.Incarnation != 0 && d.Incarnation != r.desc.Incarnation {
		return nil
	}
	return r
}

func (t *Table) get(id uint32) *Region {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.all[id]
}

// All returns the regions, in any order.
func (t *Table) All() []*Region {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]*Region, 0, len(t.all))
	for _, r := range t.all {
		out = append(out, r)
	}
	return out
}

// Place returns the PCI address of the GPU and the NUMA node of the registered memory. If regions
// differ, these are "" and -1. ok is false if no region is registered.
func (t *Table) Place() (gpu string, node int, ok bool) {
	all := t.All()
	if len(all) == 0 {
		return "", -1, false
	}
	gpu, node = all[0].desc.DeviceBusID, all[0].desc.NUMANode
	for _, r := range all[1:] {
		if r.desc.DeviceBusID != gpu {
			gpu = ""
		}
		if r.desc.NUMANode != node {
			node = -1
		}
	}
	return gpu, node, true
}

// RevokeAll revokes all regions concurrently, since each may have to wait for the same unresponsive
// peer.
func (t *Table) RevokeAll() error {
	all := t.All()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, r := range all {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = r.Revoke()
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}
