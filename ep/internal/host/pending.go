// SPDX-License-Identifier: MIT

package host

import (
	"fmt"
	"time"

	"mori/ep/internal/plan"
)

// A pending is a call between its send and its recv. A goroutine carries it out.
type pending struct {
	done      chan error   // nil if there is no such call
	interrupt func() error // may be nil
}

// askInterval is how often await calls interrupt.
const askInterval = 50 * time.Millisecond

// start carries out the rest of a call in a goroutine.
func (p *pending) start(rest func() error) {
	done := make(chan error, 1)
	p.done = done
	go func() { done <- rest() }()
}

// await waits for the rest of the call, which Options.Timeout bounds. If interrupt returns an
// error, await returns it, and may be called again.
func (p *pending) await(act string) error {
	if p.done == nil {
		return fmt.Errorf("%s without its send: %w", act, plan.ErrState)
	}
	ask := time.NewTicker(askInterval)
	defer ask.Stop()
	for {
		select {
		case err := <-p.done:
			p.done = nil
			return err
		case <-ask.C:
			if p.interrupt == nil {
				continue
			}
			if err := p.interrupt(); err != nil {
				return err
			}
		}
	}
}

// settle waits for a call whose recv will not come.
func (p *pending) settle() {
	if p.done != nil {
		<-p.done
		p.done = nil
	}
}
