// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"mori/io/internal/control"
)

// A pace is how long to pause between attempts.
type pace struct{ first, most time.Duration }

// replayPace is an engine's, between two attempts to find a path, and before a transfer is sent
// again that was replayed before.
var replayPace = pace{first: 20 * time.Millisecond, most: time.Second}

// after is the pause behind n attempts.
func (p pace) after(n int32) time.Duration {
	if n == 0 {
		return 0
	}
	return min(p.first<<min(n-1, 16), p.most)
}

// maxReplays is how often a transfer is moved to another path before it fails. With the back-off
// that is 16 s of paths that break at once.
const maxReplays = 20

// maxReturns is how often a peer is asked for a path before the transfers that wait for one fail,
// also those without a deadline: after 95 s at least.
const maxReturns = 100

// A replayer finds another path for what a closed path of a peer left undone, or was too late for.
// Before it sends anything again, the peer confirms that it has closed its end, too: so no byte of
// the old path can land behind a newer one.
type replayer struct{ peer *peer }

// replay returns at once. The transfers end by their deadline, when the peer turns out to be gone
// for good, or when the registration of the peer ends.
func (r replayer) replay(old *path, left []*transfer) {
	groups := map[int32][]*transfer{} // by the number of replays, which sets the pause
	for _, t := range left {
		n := t.replays.Load()
		groups[n] = append(groups[n], t)
	}
	if tired := groups[maxReplays]; tired != nil {
		delete(groups, maxReplays)
		for _, t := range tired {
			t.fail(fmt.Errorf("stopped after %d replays, the last path broke: %w", maxReplays, t.loss()))
			t.end()
		}
	}
	for n, group := range groups {
		if closed := r.peer.parked.add(group...); closed != nil {
			for _, t := range group {
				t.fail(closed)
				t.end()
			}
			continue
		}
		started := r.peer.spawn(func() {
			r.pause(r.peer.engine.pace.after(n))
			r.run(old, group)
		})
		if !started {
			r.giveUp(group, r.peer.reason())
		}
	}
}

// pause waits for d, or until the registration of the peer ends.
func (r replayer) pause(d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-r.peer.stopped.Done():
	}
}

// run brings transfers to another path.
func (r replayer) run(old *path, left []*transfer) {
	p := r.peer
	for attempt := int32(1); ; attempt++ {
		left = p.parked.still(left)
		if len(left) == 0 {
			return
		}
		err := r.confirm(old, left[0].session.route.backend)
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
		p.engine.self.Log.Info("waiting for a path", "peer", p.desc.Key, "transfers", len(left),
			"reason", err)
		r.pause(p.engine.pace.after(attempt))
	}
}

// confirm has the peer close its end of old, once.
func (r replayer) confirm(old *path, b *backend) error {
	<-old.gone // so has this side
	if old.dropped.Load() {
		return nil
	}
	ctx, cancel := r.peer.controlContext(b)
	defer cancel()
	if err := r.peer.ctl.Drop(ctx, old.token); err != nil {
		return err
	}
	old.dropped.Store(true)
	return nil
}

// resume starts the transfers on the present path of their sessions and returns those for which
// there is none.
func (r replayer) resume(left []*transfer) ([]*transfer, error) {
	for i, t := range left {
		if local := t.session.local; !local.Open() {
			t.fail(local.Gone())
		}
		pl, err := t.session.ready()
		if err != nil {
			return left[i:], err
		}
		if !r.peer.parked.take(t) {
			continue
		}
		if t.failure() != nil {
			t.end()
			continue
		}
		t.resume(pl)
	}
	return nil, nil
}

// hopeless reports whether no later attempt can do better: the peer's process is gone, or is
// another one, or is not registered any more.
func (r replayer) hopeless(err error) bool {
	nobodyThere := errors.Is(err, ErrUnreachable) && errors.Is(err, syscall.ECONNREFUSED)
	if r.peer.stopped.Err() != nil || nobodyThere {
		return true
	}
	for _, final := range []error{control.ErrTurnedAway, ErrNotFound, ErrBadState, ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

func (r replayer) giveUp(left []*transfer, err error) {
	for _, t := range left {
		if r.peer.parked.take(t) {
			t.fail(err)
			t.end()
		}
	}
}

// controlContext bounds one exchange with the peer, by the end of its registration as well.
func (p *peer) controlContext(b *backend) (context.Context, context.CancelFunc) {
	ctx, cancel := p.engine.controlContext(b)
	unhook := context.AfterFunc(p.stopped, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}
