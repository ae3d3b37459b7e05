// SPDX-License-Identifier: MIT

package path

import (
	"sync"
	"sync/atomic"
	"time"
)

// notifyDelay is how long a notification waits for a transfer that it can be submitted with, which
// saves a wakeup of the worker.
const notifyDelay = 200 * time.Microsecond

// A deferred list has the submissions that reaping postpones until the next submit. If none comes
// in time, the path's worker sends them. A timer wakes the worker.
type deferred struct {
	some  atomic.Bool // the list is not empty
	timer *time.Timer // runs while the list is not empty

	mu   sync.Mutex
	list []pending
	wake time.Time // when the timer fires
}

func (d *deferred) init() {
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
}

// add postpones w. It may be called while reaping.
func (d *deferred) add(w pending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, w)
	d.some.Store(true)
	now := time.Now()
	if wake := w.wake(now); len(d.list) == 1 || wake.Before(d.wake) {
		d.wake = wake
		d.timer.Reset(wake.Sub(now))
	}
}

// move appends the items that are due to backlog, or all items.
func (d *deferred) move(backlog []pending, everything bool) []pending {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	rest := d.list[:0]
	for _, w := range d.list {
		if everything || !w.due.After(now) {
			backlog = append(backlog, w)
			continue
		}
		if len(rest) == 0 || w.due.Before(d.wake) {
			d.wake = w.due
		}
		rest = append(rest, w)
	}
	clear(d.list[len(rest):])
	d.list = rest
	if d.some.Store(len(rest) > 0); len(rest) > 0 {
		d.timer.Reset(d.wake.Sub(now))
	} else {
		d.timer.Stop()
	}
	return backlog
}

// wake returns when the worker sends w, unless a submit sends it earlier.
func (w *pending) wake(now time.Time) time.Time {
	if w.due.IsZero() {
		return now.Add(notifyDelay)
	}
	return w.due
}
