// SPDX-License-Identifier: MIT

package host

import (
	"errors"
	"testing"

	"mori/ep/internal/plan"
)

// An interrupt ends the wait for a call, and a later wait gets the result of the call.
func TestPendingCanBeAwaitedAgain(t *testing.T) {
	var stop error
	p := pending{interrupt: func() error { return stop }}
	if err := p.await("recv"); !errors.Is(err, plan.ErrState) {
		t.Errorf("recv before send: %v", err)
	}
	finish, result := make(chan struct{}), errors.New("the result")
	p.start(func() error {
		<-finish
		return result
	})
	stop = errors.New("interrupted")
	if err := p.await("recv"); err != stop {
		t.Errorf("interrupted: %v", err)
	}
	stop = nil
	close(finish)
	if err := p.await("recv"); err != result {
		t.Errorf("awaited again: %v, want %v", err, result)
	}
	if err := p.await("recv"); !errors.Is(err, plan.ErrState) {
		t.Errorf("recv after recv: %v", err)
	}
	p.start(func() error { return nil })
	if p.settle(); p.done != nil {
		t.Error("a call is pending after settle")
	}
	p.settle()
}
