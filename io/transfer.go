// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"mori/core/config"
	"mori/core/fabric"
	"mori/io/internal/batch"
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
	t.batch.Release()
	t.batch = nil
	if t.silent {
		if code.Failed() {
			e.self.Log.Debug("notification lost", "reason", msg)
		}
		return
	}
	t.session.local.Leave()
	t.status.of.Store(nil)
	t.session.peer.order.finish(t, code, msg, t.endTime(code))
	e.endings.Add()
	if code.Failed() {
		level := slog.LevelError
		if errors.Is(err, ErrClosed) {
			level = slog.LevelDebug
		}
		e.self.Log.Log(context.Background(), level, "transfer failed", "peer", t.session.peer.desc.Key,
			"code", code, "reason", msg)
		if now := time.Now(); errors.Is(err, fabric.ErrTimeout) && t.overdue(now) != nil {
			e.stalls.Write(config.Get(config.TraceDir), now)
		}
	}
}

// notification is a transfer of no bytes that notifies the peer of t, whose bytes are all moved. It
// is replayed like any other, and may arrive twice: the peer keeps one mark for each uid.
func (t *transfer) notification() *transfer {
	n := &transfer{session: t.session, uid: t.uid, kind: fabric.OpWrite, to: t.to, start: t.start,
		limit: t.limit, silent: true}
	n.replays.Store(t.replays.Load())
	n.batch = batch.New()
	n.batch.Notify(&t.to, t.uid)
	return n
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
	t.batch.Rebase(&t.to, &pl.to)
	t.to = pl.to
	if t.silent {
		t.batch.Carry(t.uid)
	}
	pl.path.start(t)
}

// Cancel ends the transfer, unless it has ended. When it returns nil no byte of it can land any
// more, neither here nor at the peer. ctx bounds the wait; on its error, or when the peer does not
// confirm, no byte can land here any more, but the peer may still write what it had received. A
// transfer that had moved all its bytes stays a success.
func (s *Status) Cancel(ctx context.Context) error {
	t := s.of.Load()
	if t == nil {
		return nil
	}
	return t.cancel(ctx)
}

// Cancel is Status.Cancel for all transfers of the session with this uid. Unknown ones are no
// error.
func (s *Session) Cancel(ctx context.Context, uid uint64) error {
	var found []*transfer
	s.peer.order.each(func(t *transfer) {
		if t.uid == uid && t.session.local == s.local && t.session.remote.ID == s.remote.ID {
			found = append(found, t)
		}
	})
	for _, t := range found {
		if err := t.cancel(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *transfer) cancel(ctx context.Context) error {
	t.fail(fmt.Errorf("by the caller: %w", ErrCanceled))
	p := t.session.peer
	sent := t.kind == fabric.OpWrite && t.bytes.Load() > 0
	for !p.order.over(t) {
		q := t.path.Load()
		switch {
		case p.parked.take(t):
			t.end()
			sent = sent || t.kind == fabric.OpWrite && !t.gated.Load()
		case q.withdraw(t):
		default:
			// The endpoint has some of it. Closing is what stops them for sure; the path's other
			// transfers go on over another.
			q.close(fmt.Errorf("transfer %d was canceled: %w", t.uid, ErrCanceled))
			sent = sent || t.kind == fabric.OpWrite
		}
		if p.order.over(t) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cancel transfer %d to %q: %w", t.uid, p.desc.Key, ctx.Err())
		case <-time.After(time.Millisecond): // between two paths
		}
	}
	if !sent || t.failure() == nil || !t.status.Code().Failed() {
		return nil
	}
	if err := p.ctl.Drop(ctx, t.path.Load().token); err != nil {
		return fmt.Errorf("cancel transfer %d: %q did not confirm that no more bytes land there: %w", t.uid, p.desc.Key, err)
	}
	return nil
}

// withdraw takes back the ops of t that the endpoint does not have yet, and reports whether those
// were all.
func (p *path) withdraw(t *transfer) bool {
	p.sub.Lock()
	n := 0
	for i := p.sub.next; i < len(p.sub.backlog); i++ {
		if w := &p.sub.backlog[i]; w.t == t {
			n += len(w.ops)
			w.ops = nil
		}
	}
	p.sub.Unlock()
	if n > 0 {
		p.opsEnded(t, int64(n))
	}
	return p.peer.order.over(t)
}
