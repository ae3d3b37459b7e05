// SPDX-License-Identifier: MIT

package util

import (
	"context"

	"mori/core/fabric"
)

// Read fills dst without blocking; see fabric.CQ.
func (q *CQ) Read(dst []fabric.Completion) (int, error) {
	drain(q.sources.all())
	if q.entries.ready.Load() == 0 {
		return 0, q.emptyErr()
	}
	q.mu.Lock()
	return q.take(dst)
}

func (q *CQ) emptyErr() error {
	select {
	case <-q.done:
		return fabric.ErrClosed
	default:
		return fabric.ErrAgain
	}
}

// take moves successes up to the first error into dst. The caller holds mu; take releases it.
func (q *CQ) take(dst []fabric.Completion) (int, error) {
	e := &q.entries
	var err error
	switch {
	case q.closed:
		err = fabric.ErrClosed
	case e.overrun:
		err = fabric.ErrOverrun
	case e.empty():
		err = fabric.ErrAgain
	case e.failed():
		err = fabric.ErrAvail
	}
	if err != nil {
		q.mu.Unlock()
		return 0, err
	}
	n, passive := e.take(dst)
	room := q.places.free(n, passive)
	more := !e.empty() && q.parked > 0
	q.mu.Unlock()
	if more {
		q.kick()
	}
	if room {
		for _, fn := range q.onSpace.all() {
			(*fn)()
		}
	}
	return n, nil
}

// ReadErr pops the next entry if it is an error, else returns ErrAgain; see fabric.CQ.
func (q *CQ) ReadErr(e *fabric.ErrEntry) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fabric.ErrClosed
	}
	if q.entries.empty() || !q.entries.failed() {
		return fabric.ErrAgain
	}
	q.entries.takeErr(e)
	q.places.held--
	if !q.entries.empty() && q.parked > 0 {
		q.kick()
	}
	return nil
}

// Wait is a blocking Read; see fabric.CQ.
func (q *CQ) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	if n, err := q.Read(dst); err != fabric.ErrAgain {
		return n, err
	}
	q.mu.Lock()
	q.parked++
	q.mu.Unlock()
	sources := q.sources.all() // from here on AddSource wakes this reader
	arm(sources, true)
	n, err := q.park(ctx, dst, &sources)
	arm(sources, false)
	q.mu.Lock()
	q.parked--
	// The wake-up that ended park may have announced one entry of several, or come too late for its
	// entry.
	pass := q.parked > 0 && (!q.entries.empty() || q.signals > 0)
	q.mu.Unlock()
	if pass {
		q.kick()
	}
	return n, err
}

// park checks the queue and sleeps, in turns. armed are the sources that this reader has armed;
// park updates it when the list changes.
func (q *CQ) park(ctx context.Context, dst []fabric.Completion, armed *[]Source) (int, error) {
	for {
		drain(*armed)
		q.mu.Lock()
		if now := q.sources.all(); !same(*armed, now) {
			q.mu.Unlock()
			arm(now, true)
			arm(*armed, false)
			*armed = now
			continue
		}
		if q.signals > 0 && q.entries.empty() && !q.closed {
			q.signals--
			q.mu.Unlock()
			return 0, nil
		}
		if n, err := q.take(dst); err != fabric.ErrAgain {
			return n, err
		}
		select {
		case <-q.wake:
		case <-q.done:
			return 0, fabric.ErrClosed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
