// SPDX-License-Identifier: MIT

package util

import "mori/core/fabric"

// FD is the descriptor to wait on; see fabric.WaitObject. It is closed with the queue, but for a
// waiter that has to hear of that: its next TryWait closes it.
func (q *CQ) FD() (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fd.descriptor(q.closed)
}

// TryWait is nil if FD will report what comes next; see fabric.WaitObject. It consumes a Signal
// once nothing else is there. Sources are armed by an answer of nil and until the next call.
func (q *CQ) TryWait() error {
	q.mu.Lock()
	armed := q.fdSources
	q.fdSources = nil
	q.mu.Unlock()
	arm(armed, false)
	q.drain()
	q.mu.Lock()
	if err := q.tryWait(); err != nil {
		q.mu.Unlock()
		return err
	}
	if err := q.fd.arm(); err != nil || len(q.sources) == 0 {
		q.mu.Unlock()
		return err
	}
	sources := q.sources
	q.mu.Unlock()
	arm(sources, true)
	for _, s := range sources {
		s.Drain()
	}
	q.mu.Lock()
	err := q.tryWait()
	if err == nil {
		q.fdSources = sources // AddSource meanwhile has fired, and the next call arms what it added
	}
	q.mu.Unlock()
	if err != nil {
		arm(sources, false)
	}
	return err
}

// tryWait is nil if there is nothing to read. With mu held.
func (q *CQ) tryWait() error {
	switch {
	case q.closed:
		q.fd.release()
		return fabric.ErrClosed
	case q.head != q.tail || q.overrun:
		q.fd.disarm()
		return fabric.ErrAgain
	case q.signals > 0:
		q.signals--
		q.fd.disarm()
		return fabric.ErrAgain
	}
	return nil
}
