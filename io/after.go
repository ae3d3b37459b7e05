// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/io/internal/gate"
)

// An After holds a transfer back until a GPU has come so far. The zero value holds nothing back.
type After = gate.After

// AfterEvent begins when e has happened, as it was recorded last at the time of the call. e may be
// recorded again or destroyed after that.
func AfterEvent(e *device.Event) After { return gate.Event(e) }

// AfterStream begins when s has done what it was given before the call.
func AfterStream(s *device.Stream) After { return gate.Stream(s) }

// hold parks t, which has its place in the order already, until g happens.
func (p *peer) hold(g *gate.Gate, t *transfer) {
	t.gated.Store(true)
	if closed := p.parked.add(t); closed != nil {
		t.fail(errors.Join(closed, p.engine.gates.Release(g, false)))
		t.end()
		return
	}
	p.engine.gates.Watch(g, gated{t})
}

// A gated transfer waits for a gate: the gate.Waiter.
type gated struct{ t *transfer }

func (w gated) Waits() bool { return w.t.session.peer.parked.has(w.t) }

// Open lets the transfer begin, unless it has ended meanwhile.
func (w gated) Open(err error) {
	t := w.t
	if !t.session.peer.parked.take(t) {
		return
	}
	t.gated.Store(false)
	if err != nil {
		t.fail(afterFailed(err))
	}
	q := t.path.Load()
	switch {
	case t.failure() != nil:
		t.end()
	case q.err() != nil:
		t.session.peer.replays.replay(q, []*transfer{t})
	default:
		q.start(t)
	}
}

func afterFailed(err error) error {
	return fmt.Errorf("the event or stream that the transfer waited for: %w (%w)", err, ErrGPU)
}
