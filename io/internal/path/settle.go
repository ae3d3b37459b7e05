// SPDX-License-Identifier: MIT

package path

import (
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/io/internal/transfer"
)

// again has an op sent once more whose bytes were altered on the way, after a pause that doubles
// each time, unless that has happened to its transfer too often.
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

// opFailed books an op that did not end well. If that is the path's fault, the path is given up.
func (p *Path) opFailed(t *transfer.Transfer, err error) {
	if t.OpFailed(err) && p.Err() == nil {
		p.config.Health.Broke(p.config.Transport.Name(), err)
		go p.Close(fmt.Errorf("path %s to %q broke: %w", p.name, p.config.Peer, err))
	}
}

// Nudge has the worker look for room again if there is a backlog. Completions do that already; this
// is for a provider that makes room only after it reported a completion.
func (p *Path) Nudge() {
	if p.backlog.waiting.Load() > 0 {
		p.wake()
	}
}

// reap books all completions that are in the queue. Calls overlap: one of them does the work, also
// the one that a provider makes from within Read.
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

// opsEnded counts n ended ops of t, and after the last ends it, or leaves the rest to another path.
// Its notification, if it did not travel with the bytes, goes out then and holds up nobody: waiting
// for it took about a quarter of the time of 1024 x 4 KiB over TCP.
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

// later leaves a notification to the next submit, or to the worker. It may be called while reaping.
func (p *Path) later(n *transfer.Transfer) {
	if p.enter(n) {
		n.OpsEnded(1) // nobody submits it in place
		p.backlog.todo.add(pending{t: n, ops: n.Ops()})
	}
}
