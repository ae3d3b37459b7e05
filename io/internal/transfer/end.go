// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"mori/core/config"
	"mori/core/fabric"
	"mori/io/internal/errs"
)

// End completes t, which is on no path any more: it reports and records the outcome.
func (t *Transfer) End() {
	err, msg := t.Failure(), "success"
	if err != nil {
		msg = fmt.Sprintf("%s: %v", t.report(), err)
		if lost := t.Loss(); lost != nil && !errors.Is(err, lost) {
			msg += fmt.Sprintf(" (%v)", lost)
		}
	}
	code, msg := Outcome(err, msg, t.pair.GPUs)
	r := t.pair.Pending.Reporter
	t.batch.Release()
	t.batch = nil
	if t.silent {
		if code.Failed() {
			r.Log.Debug("notification lost", "reason", msg)
		}
		return
	}
	t.pair.Local.Leave()
	t.Status.of.Store(nil)
	t.pair.Pending.Order.finish(t, code, msg, t.end(code.Failed()))
	r.Endings.Add()
	if code.Failed() {
		r.failed(t, err, code, msg)
	}
}

func (r *Reporter) failed(t *Transfer, err error, code Code, msg string) {
	level := slog.LevelError
	if errors.Is(err, errs.ErrClosed) {
		level = slog.LevelDebug
	}
	r.Log.Log(context.Background(), level, "transfer failed", "peer", t.pair.Pending.Peer, "code", code,
		"reason", msg)
	if now := time.Now(); errors.Is(err, fabric.ErrTimeout) && t.overdue(now) != nil {
		r.Stalls.Write(config.Get(config.TraceDir), now)
	}
}

// cancel implements Status.Cancel.
func (t *Transfer) cancel(ctx context.Context) error {
	t.Fail(fmt.Errorf("by the caller: %w", errs.ErrCanceled))
	p := t.pair.Pending
	sent := t.kind == fabric.OpWrite && t.bytes.Load() > 0
	for !p.Order.over(t) {
		path := t.Path()
		if p.Parked.Take(t) {
			t.End()
			sent = sent || t.kind == fabric.OpWrite && !t.gated.Load()
		} else if path.Withdraw(t); !p.Order.over(t) {
			// The endpoint has some of its ops. Only closing the path stops them reliably. The
			// path's other transfers move to another path.
			path.Close(fmt.Errorf("transfer %d was canceled: %w", t.uid, errs.ErrCanceled))
			sent = sent || t.kind == fabric.OpWrite
		}
		if p.Order.over(t) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cancel transfer %d to %q: %w", t.uid, p.Peer, ctx.Err())
		case <-time.After(time.Millisecond): // t may be between two paths
		}
	}
	if !sent || t.Failure() == nil || !t.Status.Code().Failed() {
		return nil
	}
	if err := t.Path().Drop(ctx); err != nil {
		return fmt.Errorf("cancel transfer %d: %q did not confirm that no more bytes land there: %w",
			t.uid, p.Peer, err)
	}
	return nil
}
