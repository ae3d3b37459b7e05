// SPDX-License-Identifier: MIT

package path

import (
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/io/internal/transfer"
)

// again sends an op once more whose bytes were altered in transit, after a pause that doubles each
// time. It returns false if that has happened to the transfer too often.
func (p *Path) again(t *transfer.Transfer, op int) bool {
	p.config.Recorder.Altered.Add(1)
	ops, times := t.OpAltered(op)
	if ops == nil {
		return false
	}
	p.config.Log.Warn("bytes altered in transit, sending them again", "peer", p.config.Peer, "path", p.name,
		"uid", t.UID())
	p.backlog.todo.add(pending{t, ops, time.Now().Add(notifyDelay << times)})
	return true
}

// opFailed records a failed op. If the path caused the failure, opFailed closes the path.
func (p *Path) opFailed(t *transfer.Transfer, err error) {
	if t.OpFailed(err) && p.Err() == nil {
		p.config.Health.Broke(p.config.Transport.Name(), err)
		go p.Close(fmt.Errorf("path %s to %q broke: %w", p.name, p.config.Peer, err))
	}
}

// Nudge wakes the worker to submit a backlog, if there is one. Completions already do that. Nudge
// is for a provider that makes room only after it reported a completion.
func (p *Path) Nudge() {
	if p.backlog.waiting.Load() > 0 {
		p.wake()
	}
}

// reap handles all completions in the queue. If calls overlap, one of them does the work. That
// includes a call that a provider makes from within Read.
func (p *Path) reap() {
	p.reaps.Do(func() {
		some := false
		for {
			n, err := p.config.CQ.Read(p.ended[:])
			p.settle(p.ended[:n])
			if errors.Is(err, fabric.ErrAvail) {
				p.settleErrors()
			} else if n == 0 {
				break
			}
			some = true
		}
		if some {
			p.Nudge()
		}
	})
}

func (p *Path) settle(done []fabric.Completion) {
	for i := range done {
		if t, op := p.ledger.Find(done[i].Ctx); t != nil {
			t.OpDone(op, done[i].Len)
			p.opsEnded(t, 1)
		}
	}
}

func (p *Path) settleErrors() {
	var e fabric.ErrEntry
	for p.config.CQ.ReadErr(&e) == nil {
		if t, op := p.ledger.Find(e.Ctx); t != nil {
			cause := e
			if e.Err == fabric.ErrCRC && p.again(t, op) {
				continue
			}
			p.opFailed(t, &cause)
			p.opsEnded(t, 1)
		}
	}
}

// opsEnded counts n ended ops of t. After the last one it ends t, or moves unfinished ops to
// another path. A notification that did not travel with the bytes is sent then. The transfer does
// not wait for it: waiting took about a quarter of the time of 1024 x 4 KiB over TCP.
func (p *Path) opsEnded(t *transfer.Transfer, n int64) {
	if !t.OpsEnded(n) {
		return
	}
	p.ledger.Leave(t)
	if t.Undone() {
		if !p.ledger.Orphan(t) {
			p.config.Left(p, []*transfer.Transfer{t})
		}
		return
	}
	if n := t.Notification(); n != nil {
		p.later(n)
	}
	t.End()
}

// later postpones a notification until the next submit or the worker. It may be called while
// reaping.
func (p *Path) later(n *transfer.Transfer) {
	if p.enter(n) {
		n.OpsEnded(1) // Enter counted one op for a caller that submits; nobody does here
		p.backlog.todo.add(pending{t: n, ops: n.Ops()})
	}
}
