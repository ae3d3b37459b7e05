// SPDX-License-Identifier: MIT

package peer

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"mori/io/internal/control"
	"mori/io/internal/errs"
	"mori/io/internal/transfer"
)

// A Pace sets the pauses between attempts: the first, and the longest.
type Pace struct{ First, Most time.Duration }

// DefaultPace is an engine's pace between two attempts to find a path, and between two replays of a
// transfer.
var DefaultPace = Pace{First: 20 * time.Millisecond, Most: time.Second}

// after returns the pause after n attempts.
func (p Pace) after(n int32) time.Duration {
	if n == 0 {
		return 0
	}
	return min(p.First<<min(n-1, 16), p.Most)
}

// MaxReplays is how often a transfer is moved to another path before it fails. With the back-off
// that takes 16 s if every path breaks immediately.
const MaxReplays = 20

// maxReturns is how often a replayer asks a peer for a path before the waiting transfers fail, even
// those without a deadline. That takes at least 95 s.
const maxReturns = 100

// A replayer finds another path for transfers that a closed path did not finish or did not start.
// Before it sends anything again, the peer confirms that it has closed its end too. So no late byte
// of the old path can overwrite a newer write.
type replayer struct {
	config  *Config
	pending *transfer.Pending
	tasks   *tasks
}

// replay returns immediately. The transfers end by their deadline, when the peer's process turns
// out to have ended, or when the registration of the peer ends.
func (r *replayer) replay(old transfer.Path, left []*transfer.Transfer) {
	groups := map[int32][]*transfer.Transfer{} // by the number of replays, which sets the pause
	for _, t := range left {
		n := t.Replays()
		groups[n] = append(groups[n], t)
	}
	if tired := groups[MaxReplays]; tired != nil {
		delete(groups, MaxReplays)
		for _, t := range tired {
			t.Fail(fmt.Errorf("stopped after %d replays, the last path broke: %w", MaxReplays, t.Loss()))
			t.End()
		}
	}
	for n, group := range groups {
		if closed := r.pending.Parked.Add(group...); closed != nil {
			for _, t := range group {
				t.Fail(closed)
				t.End()
			}
			continue
		}
		started := r.tasks.spawn(func() {
			r.pause(r.config.Pace.after(n))
			r.run(old, group)
		})
		if !started {
			r.giveUp(group, r.tasks.reason())
		}
	}
}

// pause waits for d, or until the registration of the peer ends.
func (r *replayer) pause(d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-r.tasks.ctx.Done():
	}
}

// run moves transfers to another path.
func (r *replayer) run(old transfer.Path, left []*transfer.Transfer) {
	for attempt := int32(1); ; attempt++ {
		left = r.pending.Parked.Still(left)
		if len(left) == 0 {
			return
		}
		err := old.Confirm(r.tasks.ctx)
		if err == nil {
			if left, err = r.resume(left); len(left) == 0 {
				return
			}
		}
		if r.hopeless(err) {
			r.giveUp(left, err)
			return
		}
		if attempt == maxReturns {
			r.giveUp(left, fmt.Errorf("stopped after %d attempts to open a path: %w", attempt, err))
			return
		}
		r.config.Self.Log.Info("waiting for a path", "peer", r.pending.Peer, "transfers", len(left),
			"reason", err)
		r.pause(r.config.Pace.after(attempt))
	}
}

// resume starts the transfers on the present path of their pairs. It returns those that found no
// path.
func (r *replayer) resume(left []*transfer.Transfer) ([]*transfer.Transfer, error) {
	for i, t := range left {
		pair := t.Pair()
		if !pair.Local.Open() {
			t.Fail(pair.Local.Gone())
		}
		if err := pair.Mover.Resume(t); err != nil {
			return left[i:], err
		}
	}
	return nil, nil
}

// hopeless reports whether retries are pointless: the peer's process has ended or was replaced, or
// the peer is not registered any more.
func (r *replayer) hopeless(err error) bool {
	nobodyThere := errors.Is(err, errs.ErrUnreachable) && errors.Is(err, syscall.ECONNREFUSED)
	if r.tasks.ctx.Err() != nil || nobodyThere {
		return true
	}
	for _, final := range []error{control.ErrTurnedAway, errs.ErrNotFound, errs.ErrBadState, errs.ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

func (r *replayer) giveUp(left []*transfer.Transfer, err error) {
	for _, t := range left {
		if r.pending.Parked.Take(t) {
			t.Fail(err)
			t.End()
		}
	}
}
