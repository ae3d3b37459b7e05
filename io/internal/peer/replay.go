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

// A Pace is how long to pause between attempts.
type Pace struct{ First, Most time.Duration }

// DefaultPace is an engine's, between two attempts to find a path, and before a transfer is sent
// again that was replayed before.
var DefaultPace = Pace{First: 20 * time.Millisecond, Most: time.Second}

// after is the pause behind n attempts.
func (p Pace) after(n int32) time.Duration {
	if n == 0 {
		return 0
	}
	return min(p.First<<min(n-1, 16), p.Most)
}

// MaxReplays is how often a transfer is moved to another path before it fails. With the back-off
// that is 16 s of paths that break at once.
const MaxReplays = 20

// maxReturns is how often a peer is asked for a path before the transfers that wait for one fail,
// also those without a deadline: after 95 s at least.
const maxReturns = 100

// A replayer finds another path for what a closed path of a peer left undone, or was too late for.
// Before it sends anything again, the peer confirms that it has closed its end, too: so no byte of
// the old path can land behind a newer one.
type replayer struct {
	config  *Config
	pending *transfer.Pending
	tasks   *tasks
}

// replay returns at once. The transfers end by their deadline, when the peer turns out to be gone
// for good, or when the registration of the peer ends.
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

// run brings transfers to another path.
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

// resume starts the transfers on the present path of their pairs and returns those for which there
// is none.
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

// hopeless reports whether no later attempt can do better: the peer's process is gone, or is
// another one, or is not registered any more.
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
