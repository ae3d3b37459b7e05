// SPDX-License-Identifier: MIT

package remote

import (
	"sync/atomic"
	"time"

	"mori/shmem/internal/peers"
)

// epochs separates the ops queued before a quiet from those queued meanwhile, so quiet ends even if
// others keep queueing. An op counts in the epoch in which it was queued. A quiet switches to the
// other epoch and waits until the old one is empty; the next quiet switches back.
type epochs struct {
	now     atomic.Uint32
	pending [2]atomic.Int64
	idle    chan struct{} // signalled when an epoch may have become empty
	turn    chan struct{} // holds a token unless a quiet is in progress
}

func newEpochs() *epochs {
	e := &epochs{idle: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	e.turn <- struct{}{}
	return e
}

// enter counts an op in the current epoch, and returns that epoch.
func (e *epochs) enter() uint32 {
	for {
		now := e.now.Load()
		e.pending[now].Add(1)
		if e.now.Load() == now { // otherwise a quiet may have checked before
			return now
		}
		e.leave(now)
	}
}

// leave counts an op as ended.
func (e *epochs) leave(epoch uint32) {
	if e.pending[epoch].Add(-1) == 0 {
		select {
		case e.idle <- struct{}{}:
		default:
		}
	}
}

// empty reports whether no op of the epoch is pending.
func (e *epochs) empty() bool { return e.pending[0].Load() == 0 && e.pending[1].Load() == 0 }

// quiet waits until all earlier ops have ended.
func (e *epochs) quiet(pes *peers.Group, deadline time.Time) error {
	if _, err := peers.Receive(pes, e.turn, deadline); err != nil {
		return err
	}
	defer func() { e.turn <- struct{}{} }()
	old := e.now.Load()
	for _, epoch := range [2]uint32{1 - old, old} { // the first one has ops left only if the last quiet timed out
		if epoch == old {
			e.now.Store(1 - old)
		}
		for e.pending[epoch].Load() != 0 {
			if _, err := peers.Receive(pes, e.idle, deadline); err != nil {
				return err
			}
		}
	}
	return nil
}
