// SPDX-License-Identifier: MIT

package remote

import (
	"sync/atomic"
	"time"

	"mori/shmem/internal/peers"
)

// epochs separate what was queued before a quiet from what is queued meanwhile, so that quiet ends
// though others go on. An op counts in the epoch in which it was queued. A quiet begins the other
// one, and waits until the old one has no op left; the next quiet turns back.
type epochs struct {
	now     atomic.Uint32
	pending [2]atomic.Int64
	idle    chan struct{} // an epoch may have become empty
	turn    chan struct{} // holds a token unless a quiet is on its way
}

func newEpochs() *epochs {
	e := &epochs{idle: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	e.turn <- struct{}{}
	return e
}

// enter counts an op in the present epoch, and returns that.
func (e *epochs) enter() uint32 {
	for {
		now := e.now.Load()
		e.pending[now].Add(1)
		if e.now.Load() == now { // else a quiet may have looked before
			return now
		}
		e.leave(now)
	}
}

// leave ends an op.
func (e *epochs) leave(epoch uint32) {
	if e.pending[epoch].Add(-1) == 0 {
		select {
		case e.idle <- struct{}{}:
		default:
		}
	}
}

// empty reports whether nothing that was queued before is on its way.
func (e *epochs) empty() bool { return e.pending[0].Load() == 0 && e.pending[1].Load() == 0 }

// quiet waits until all that entered before has left.
func (e *epochs) quiet(pes *peers.Group, deadline time.Time) error {
	if _, err := peers.Receive(pes, e.turn, deadline); err != nil {
		return err
	}
	defer func() { e.turn <- struct{}{} }()
	old := e.now.Load()
	for _, epoch := range [2]uint32{1 - old, old} { // in the first there is something left only if the last quiet gave up
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
