// SPDX-License-Identifier: MIT

package gpu

import (
	"cmp"
	"errors"
	"sync"

	"mori/core/bootstrap"
	"mori/ep/internal/call"
	"mori/native/abi"
	"mori/shmem"
)

// excluded is the set of ranks that are left out. Safe for concurrent use.
type excluded struct {
	mu    sync.Mutex
	ranks uint64 // a bit for each
	epoch uint32 // how often Exclude was called
}

// add leaves out the ranks of a mask, and returns the number of the exclusion.
func (e *excluded) add(mask uint64) (epoch uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ranks |= mask
	e.epoch++
	return e.epoch
}

// mask returns a bit for each rank that is left out.
func (e *excluded) mask() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ranks
}

// has reports whether an error is about a rank that is left out.
func (e *excluded) has(err error) (is bool) {
	is = true
	e.unless(err, func() { is = false })
	return is
}

// unless calls f if an error is not about a rank that is left out. No rank is added meanwhile.
func (e *excluded) unless(err error, f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var gone *bootstrap.RankError
	if !errors.As(err, &gone) || gone.Rank < 0 || gone.Rank >= abi.EPMostRanks || e.ranks>>gone.Rank&1 == 0 {
		f()
	}
}

// health decides whether an op is broken, by what kernels reported and which processes have died.
type health struct {
	world    *shmem.World
	state    *call.State
	faults   *faults
	excluded *excluded
}

// lost returns an error if a rank that is not left out has died.
func (h *health) lost() error {
	err := h.world.Failed()
	if err == nil || h.excluded.has(err) {
		return nil
	}
	return err
}

// trouble returns why the op is broken, or nil. The death of a rank says more than a timeout of the
// wait for it.
func (h *health) trouble() error {
	switch lost := h.lost(); {
	case lost == nil:
		return h.faults.fault()
	case h.faults.mismatch():
		return cmp.Or(h.faults.fault(), lost)
	default:
		return lost
	}
}

// update breaks the op if there is trouble by now.
func (h *health) update() {
	if !h.state.Closed() {
		_ = h.state.Break(h.trouble())
	}
}

// usable returns why a call cannot begin, or nil.
func (h *health) usable() error {
	h.update()
	return h.state.Usable()
}

// check returns why the op is broken, or a *plan.CapError that no call has returned yet. It does
// not wait.
func (h *health) check() error {
	h.update()
	if err := h.state.Broken(); err != nil {
		return err
	}
	return h.faults.overflow()
}
