// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"mori/core/fabric"
)

// end closes the books on t, which is on no path any more.
func (t *transfer) end() {
	err, msg := t.failure(), "success"
	if err != nil {
		msg = fmt.Sprintf("%s: %v", t.report(), err)
		if lost := t.loss(); lost != nil && !errors.Is(err, lost) {
			msg += fmt.Sprintf(" (%v)", lost)
		}
	}
	code, msg := t.session.route.backend.outcome(err, msg)
	e := t.session.engine
	t.batch.release()
	t.batch = nil
	if t.silent {
		if code.Failed() {
			e.self.Log.Debug("notification lost", "reason", msg)
		}
		return
	}
	t.session.local.leave()
	t.status.of.Store(nil)
	t.session.peer.order.finish(t, code, msg, t.endTime(code))
	e.tellEnded()
	if code.Failed() {
		level := slog.LevelError
		if errors.Is(err, ErrClosed) {
			level = slog.LevelDebug
		}
		e.self.Log.Log(context.Background(), level, "transfer failed", "code", code, "reason", msg)
		e.dumpStall(t)
	}
}

// notification is a transfer of no bytes that tells the peer of t, whose bytes are all moved. It is
// replayed like any other, and may arrive twice: the peer keeps one mark for each uid.
func (t *transfer) notification() *transfer {
	n := &transfer{session: t.session, uid: t.uid, kind: fabric.OpWrite, to: t.to, start: t.start, limit: t.limit, silent: true}
	n.replays.Store(t.replays.Load())
	n.batch = batches.Get().(*batch)
	n.batch.segs, n.batch.rsegs = n.batch.segs[:0], n.batch.rsegs[:0]
	n.batch.ops = append(n.batch.ops[:0], fabric.Op{Kind: fabric.OpWrite, RSeg: fabric.RSeg{Addr: t.to.remote, Key: t.to.key}})
	n.batch.reset()
	n.tell()
	return n
}

// tell makes the only op of a notification carry the uid.
func (t *transfer) tell() {
	t.batch.ops[0].Flags = fabric.OpWantCQE | fabric.OpRemoteData
	t.batch.ops[0].Data = t.uid
}

// resume brings an orphan back on the path of pl.
func (t *transfer) resume(pl *plan) {
	t.mu.Lock()
	again := t.lost != nil
	t.lost = nil
	t.mu.Unlock()
	if again {
		t.replays.Add(1)
	}
	t.movedOn(pl.path, again)
	t.batch.rebase(&t.to, &pl.to)
	t.to = pl.to
	if t.silent {
		t.tell()
	}
	pl.path.start(t)
}
