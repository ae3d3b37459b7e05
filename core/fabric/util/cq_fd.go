// SPDX-License-Identifier: MIT

package util

import "mori/core/fabric"

// FD is the descriptor to wait on; see fabric.WaitObject. It is closed with the queue. If somebody
// waits on it then, the waiter's next TryWait closes it.
func (q *CQ) FD() (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fd.Descriptor(q.closed)
}

// TryWait is nil if FD will report what comes next; see fabric.WaitObject. It consumes a Signal
// once nothing else is there. Sources are armed by an answer of nil and until the next call.
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
	sources := q.sources.all() // AddSource from here on fires
	q.mu.Unlock()
	if err != nil || len(sources) == 0 {
		return err
	}
	arm(sources, true)
	drain(sources)
	q.mu.Lock()
	if err = q.tryWait(); err == nil {
		q.fdSources = sources // the next call arms what AddSource added meanwhile
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
