// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
)

// maxAltered is how many ops of a transfer are sent again before the transfer fails.
const maxAltered = 8

// again has an op sent once more whose bytes were altered on the way, after a pause that doubles
// each time, unless that has happened to its transfer too often.
func (p *path) again(t *transfer, op int) bool {
	p.peer.engine.meters.altered.Add(1)
	if t.altered++; t.altered > maxAltered {
		t.fail(fmt.Errorf("bytes were altered in transit %d times: %w", t.altered, fabric.ErrCRC))
		return false
	}
	p.peer.engine.self.Log.Warn("bytes altered in transit, sending them again", "peer", p.peer.desc.Key,
		"path", p.name, "uid", t.uid)
	p.todo.add(pending{t, t.batch.Ops[op : op+1], time.Now().Add(notifyDelay << t.altered)})
	return true
}

// opFailed books an op that did not end well. If that is the path's fault, the path is given up.
func (p *path) opFailed(t *transfer, err error) {
	if t.opEnded(err) && p.err() == nil {
		p.peer.health.Broke(p.tr.Name(), err)
		go p.close(fmt.Errorf("path %s to %q broke: %w", p.name, p.peer.desc.Key, err))
	}
}

// work submits what reaping left to do.
func (p *path) work() {
	defer close(p.done)
	for {
		select {
		case <-p.kick:
			p.pump()
		case <-p.todo.timer.C:
			p.pump()
		case <-p.quit:
			return
		}
	}
}

func (p *path) wakeWorker() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// reap books all completions that are in the queue. Calls overlap: one of them does the work, also
// the one that a provider makes from within Read.
func (p *path) reap() {
	p.reaps.Do(func() {
		some := false
		for {
			n, err := p.cq.Read(p.ended[:])
			p.settle(p.ended[:n])
			if errors.Is(err, fabric.ErrAvail) {
				p.settleErrors()
			} else if n == 0 {
				break
			}
			some = true
		}
		if some && p.waiting.Load() > 0 {
			p.wakeWorker()
		}
	})
}

func (p *path) settle(done []fabric.Completion) {
	for i := range done {
		if t, op := p.ledger.get(done[i].Ctx); t != nil {
			t.batch.Done[op] = true
			t.progress(done[i].Len)
			p.opMeter(t).Moved(done[i].Len)
			p.opsEnded(t, 1)
		}
	}
}

func (p *path) settleErrors() {
	var e fabric.ErrEntry
	for p.cq.ReadErr(&e) == nil {
		if t, op := p.ledger.get(e.Ctx); t != nil {
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
func (p *path) opsEnded(t *transfer, n int64) {
	if t.ops.Add(-n) > 0 {
		return
	}
	p.ledger.remove(t.slot)
	if t.failure() == nil && t.loss() != nil {
		p.orphan(t)
		return
	}
	if t.failure() == nil && t.notify {
		p.later(t)
	}
	t.end()
}

// orphan keeps t until the path is closed, since only then none of its bytes is on its way any
// more.
func (p *path) orphan(t *transfer) {
	p.broken.Lock()
	passed := p.broken.passed
	if !passed {
		p.broken.orphans = append(p.broken.orphans, t)
	}
	p.broken.Unlock()
	if passed {
		p.peer.replays.replay(p, []*transfer{t})
	}
}

// passOrphans leaves them to the peer.
func (p *path) passOrphans() {
	p.broken.Lock()
	orphans := p.broken.orphans
	p.broken.orphans, p.broken.passed = nil, true
	p.broken.Unlock()
	if len(orphans) > 0 {
		p.peer.replays.replay(p, orphans)
	}
}
