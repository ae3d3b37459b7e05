// SPDX-License-Identifier: MIT

package stall

import (
	"sync"
	"time"
)

// A Limit allows one trace per 10 s and 100 traces in all, so that traces never fill a disk.
const (
	pause = 10 * time.Second
	most  = 100
)

// A Limit limits the traces of one process. The zero value is ready.
type Limit struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

// allows reports whether one more trace may be written now, and counts it.
func (l *Limit) allows(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= most || l.count > 0 && now.Sub(l.last) < pause {
		return false
	}
	l.last = now
	l.count++
	return true
}
