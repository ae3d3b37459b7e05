// SPDX-License-Identifier: MIT

package peer

import (
	"errors"
	"fmt"

	"mori/io/internal/errs"
	"mori/io/internal/gate"
	"mori/io/internal/transfer"
)

// Hold parks t until g happens. t already has its place in the order.
func (p *Peer) Hold(g *gate.Gate, t *transfer.Transfer) {
	t.Hold(true)
	if closed := p.Pending.Parked.Add(t); closed != nil {
		t.Fail(errors.Join(closed, p.config.Gates.Release(g, false)))
		t.End()
		return
	}
	p.config.Gates.Watch(g, gated{p, t})
}

// A gated transfer waits for a gate. It implements gate.Waiter.
type gated struct {
	peer *Peer
	t    *transfer.Transfer
}

func (w gated) Waits() bool { return w.peer.Pending.Parked.Has(w.t) }

// Open starts the transfer, unless it has ended meanwhile.
func (w gated) Open(err error) {
	t := w.t
	if !w.peer.Pending.Parked.Take(t) {
		return
	}
	t.Hold(false)
	if err != nil {
		t.Fail(AfterFailed(err))
	}
	switch q := t.Path(); {
	case t.Failure() != nil:
		t.End()
	case q.Err() != nil:
		w.peer.replays.replay(q, []*transfer.Transfer{t})
	default:
		q.Start(t)
	}
}

// AfterFailed returns the error of a transfer that could not wait for a GPU.
func AfterFailed(err error) error {
	return fmt.Errorf("the event or stream that the transfer waited for: %w (%w)", err, errs.ErrGPU)
}
