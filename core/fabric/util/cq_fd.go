// SPDX-License-Identifier: MIT

package util

import "mori/core/fabric"

// FD returns the descriptor to wait on; see fabric.WaitObject. Closing the queue closes it. If a
// program is waiting on it at that time, its next TryWait closes it.
func (q *CQ) FD() (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fd.Descriptor(q.closed)
}

// TryWait returns nil if FD will report the next entry; see fabric.WaitObject. It consumes a Signal
// if the queue is empty. The sources stay armed from a nil result until the next call.
func (q *CQ) TryWait() error {
	q.mu.Lock()
	armed := q.fdSources
	q.fdSources = nil
	q.mu.Unlock()
	arm(armed, false)
	drain(q.sources.all())
	q.mu.Lock()
	if err := q.tryWait(); err != nil {
		q.mu.Unlock()
		return err
	}
	err := q.fd.Arm()
	sources := q.sources.all() // from here on AddSource signals
	q.mu.Unlock()
	if err != nil || len(sources) == 0 {
		return err
	}
	arm(sources, true)
	drain(sources)
	q.mu.Lock()
	if err = q.tryWait(); err == nil {
		q.fdSources = sources // the next call arms sources added meanwhile
	}
	q.mu.Unlock()
	if err != nil {
		arm(sources, false)
	}
	return err
}

// tryWait returns nil if there is nothing to read. The caller holds mu.
func (q *CQ) tryWait() error {
	switch {
	case q.closed:
		q.fd.Release()
		return fabric.ErrClosed
	case !q.entries.empty() || q.entries.overrun:
		q.fd.Disarm()
		return fabric.ErrAgain
	case q.signals > 0:
		q.signals--
		q.fd.Disarm()
		return fabric.ErrAgain
	}
	return nil
}
