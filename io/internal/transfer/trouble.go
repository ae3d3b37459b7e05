// SPDX-License-Identifier: MIT

package transfer

import (
	"sync"
	"sync/atomic"
)

// Trouble is what went wrong with a transfer. The zero value is none.
type trouble struct {
	some atomic.Bool // err or lost was set: without trouble, which is usual, nobody takes mu

	mu   sync.Mutex
	err  error // guarded by mu; the first failure, which is final
	lost error // guarded by mu; the first op that its path did not bring to an end
}

// Fail makes err the end of the transfer.
func (e *trouble) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
	e.some.Store(true)
}

// Failure returns the first error that is final, nil if there is none.
func (e *trouble) Failure() error {
	if !e.some.Load() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// lose notes that the path did not bring an op to its end.
func (e *trouble) lose(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost == nil {
		e.lost = err
	}
	e.some.Store(true)
}

// Loss returns the first error of an op that another path may carry, nil if there is none.
func (e *trouble) Loss() error {
	if !e.some.Load() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

// forgive forgets what was lost, and reports whether anything was.
func (e *trouble) forgive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	lost := e.lost != nil
	e.lost = nil
	return lost
}
