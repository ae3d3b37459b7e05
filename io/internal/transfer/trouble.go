// SPDX-License-Identifier: MIT

package transfer

import (
	"sync"
	"sync/atomic"
)

// trouble holds the errors of a transfer. The zero value has none.
type trouble struct {
	some atomic.Bool // err or lost was set: without trouble, which is usual, nobody takes mu

	mu   sync.Mutex
	err  error // guarded by mu; the first failure, which is final
	lost error // guarded by mu; the first op that its path did not finish
}

// Fail fails the transfer with err. The first error stays.
func (e *trouble) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
	e.some.Store(true)
}

// Failure returns the first error that is final, nil if none is.
func (e *trouble) Failure() error {
	if !e.some.Load() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// lose records that the path did not finish an op.
func (e *trouble) lose(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost == nil {
		e.lost = err
	}
	e.some.Store(true)
}

// Loss returns the first error of an op that another path may carry, nil if no op was lost.
func (e *trouble) Loss() error {
	if !e.some.Load() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

// forgive clears what was lost, and reports whether anything was.
func (e *trouble) forgive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	lost := e.lost != nil
	e.lost = nil
	return lost
}
