// SPDX-License-Identifier: MIT

package util

import (
	"context"

	"mori/core/fabric"
)

// Read fills dst without blocking; see fabric.CQ.
func (q *CQ) Read(dst []fabric.Completion) (int, error) {
	q.drain()
	if q.ready.Load() == 0 {
		return 0, q.emptyErr()
	}
	q.mu.Lock()
	return q.take(dst)
}

// drain looks into the sources. Without mu.
func (q *CQ) drain() {
	if q.nsrc.Load() == 0 {
		return
	}
	for _, s := range q.snapshot() {
		s.Drain()
	}
}

func (q *CQ) snapshot() []Source {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sources
}

func (q *CQ) emptyErr() error {
	select {
	case <-q.done:
		return fabric.ErrClosed
	default:
		return fabric.ErrAgain
	}
}

// take moves successes up to the first error into dst. It releases mu, which is held.
func (q *CQ) take(dst []fabric.Completion) (int, error) {
	switch {
	case q.closed:
		q.mu.Unlock()
		return 0, fabric.ErrClosed
	case q.overrun:
		q.mu.Unlock()
		return 0, fabric.ErrOverrun
	case q.head == q.tail:
		q.mu.Unlock()
		return 0, fabric.ErrAgain
	}
	mask := uint64(len(q.ring) - 1)
	if q.tags[q.head&mask] == entryErr {
		q.mu.Unlock()
		return 0, fabric.ErrAvail
	}
	n, passive := 0, 0
	for n < len(dst) && q.head != q.tail && q.tags[q.head&mask] != entryErr {
		dst[n] = q.ring[q.head&mask]
		if q.tags[q.head&mask] == entryPassive {
			passive++
		}
		q.head++
		n++
	}
	q.ready.Store(int64(q.tail - q.head))
	q.held -= n - passive
	q.passive -= passive
	var space []*func()
	if q.starved && passive > 0 {
		q.starved, space = false, q.onSpace
	}
	more := q.head != q.tail && q.parked > 0
	q.mu.Unlock()
	if more {
		q.kick()
	}
	for _, fn := range space {
		(*fn)()
	}
	return n, nil
}

// ReadErr pops the next error entry, or answers ErrAgain; see fabric.CQ.
func (q *CQ) ReadErr(e *fabric.ErrEntry) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fabric.ErrClosed
	}
	if q.head == q.tail || q.tags[q.head&uint64(len(q.ring)-1)] != entryErr {
		return fabric.ErrAgain
	}
	*e = q.errs[0]
	q.errs[0] = fabric.ErrEntry{}
	if q.errs = q.errs[1:]; len(q.errs) == 0 {
		q.errs = nil
	}
	q.head++
	q.held--
	q.ready.Store(int64(q.tail - q.head))
	if q.head != q.tail && q.parked > 0 {
		q.kick()
	}
	return nil
}

// Wait is Read that parks; see fabric.CQ.
func (q *CQ) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	if n, err := q.Read(dst); err != fabric.ErrAgain {
		return n, err
	}
	q.mu.Lock()
	q.parked++
	sources := q.sources
	q.mu.Unlock()
	arm(sources, true)
	n, err := q.park(ctx, dst, &sources)
	arm(sources, false)
	q.mu.Lock()
	q.parked--
	// The wake that brought us here may have been for one entry of several, or have come too late for
	// us.
	pass := q.parked > 0 && (q.head != q.tail || q.signals > 0)
	q.mu.Unlock()
	if pass {
		q.kick()
	}
	return n, err
}

func arm(sources []Source, parking bool) {
	for _, s := range sources {
		s.Arm(parking)
	}
}

// park looks and sleeps in turns. armed are the sources that know of us; it follows changes of the
// list.
func (q *CQ) park(ctx context.Context, dst []fabric.Completion, armed *[]Source) (int, error) {
	for {
		for _, s := range *armed {
			s.Drain()
		}
		q.mu.Lock()
		if !sameSources(*armed, q.sources) {
			now := q.sources
			q.mu.Unlock()
			arm(now, true)
			arm(*armed, false)
			*armed = now
			continue
		}
		if q.signals > 0 && q.head == q.tail && !q.closed {
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

// sameSources compares two lists of which each is replaced and never changed.
func sameSources(a, b []Source) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
