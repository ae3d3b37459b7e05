// SPDX-License-Identifier: MIT

package pathbase

import (
	"sync"
	"time"

	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/local"
)

// A Registration is one region as registered with the devices of a domain.
type Registration interface {
	comparable
	Use() *local.Gate // counts the ops that use it
	Close() error     // deregisters the region
}

// A Registrations holds the registrations of a domain. Each is made when an op first needs it,
// because registering is slow.
type Registrations[R Registration] struct {
	Table  *regions.Table
	Within time.Duration                  // bounds the wait for ops when a region closes
	Stuck  func(region uint64)            // ops did not end in time: the region stays registered
	Failed func(region uint64, err error) // an error of Close

	making sync.Mutex   // taken before mu; registrations are made one at a time
	mu     sync.RWMutex // protects what follows
	byID   map[uint64]R
	over   bool
}

// Find returns the registration of a region that the caller holds open, and enters its gate; the
// caller must leave the gate. If the region is not registered, Find calls makeIt, or returns the
// zero R if makeIt is nil. It also returns the zero R if the region is being closed.
func (r *Registrations[R]) Find(mr *regions.MR, makeIt func() R) R {
	var none R
	r.mu.RLock()
	g := r.byID[mr.Key().ID]
	r.mu.RUnlock()
	if g == none && makeIt != nil {
		g = r.make(mr, makeIt)
	}
	if g == none || !g.Use().Enter() {
		return none
	}
	return g
}

// make calls makeIt without holding mu.
func (r *Registrations[R]) make(mr *regions.MR, makeIt func() R) R {
	r.making.Lock()
	defer r.making.Unlock()
	var none R
	id := mr.Key().ID
	r.mu.RLock()
	g, over := r.byID[id], r.over
	r.mu.RUnlock()
	if g != none || over {
		return g
	}
	g = makeIt()
	r.mu.Lock()
	if r.byID == nil {
		r.byID = make(map[uint64]R)
	}
	r.byID[id] = g
	r.mu.Unlock()
	again, err := r.Table.Acquire(mr.Key(), 0)
	if err != nil { // the region is being closed, and Drop may have run before
		r.Drop(id)
		return none
	}
	again.Release()
	return g
}

// Drop deregisters a region once its ops have ended. If they do not end in time, the region stays
// registered.
func (r *Registrations[R]) Drop(id uint64) {
	var none R
	r.mu.Lock()
	g := r.byID[id]
	delete(r.byID, id)
	r.mu.Unlock()
	if g == none {
		return
	}
	t := time.NewTimer(r.Within)
	defer t.Stop()
	select {
	case <-g.Use().Shut():
	case <-t.C:
		r.Stuck(id)
		return
	}
	if err := g.Close(); err != nil {
		r.Failed(id, err)
	}
}

// Close deregisters all regions. Find then makes no new registrations.
func (r *Registrations[R]) Close() {
	r.mu.Lock()
	ids := make([]uint64, 0, len(r.byID))
	for id := range r.byID {
		ids = append(ids, id)
	}
	r.over = true
	r.mu.Unlock()
	for _, id := range ids {
		r.Drop(id)
	}
}

// All returns the registrations, keyed by region id.
func (r *Registrations[R]) All() map[uint64]R {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make(map[uint64]R, len(r.byID))
	for id, g := range r.byID {
		all[id] = g
	}
	return all
}
