// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"mori/io/internal/control"
	"syscall"
	"time"
)

// A pace is how long to rest between attempts.
type pace struct{ first, most time.Duration }

// replayPace is an engine's, between two attempts to bring orphans back, and before a transfer is
// sent again that was replayed before.
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

// replay finds another path for what a closed one left undone, or was too late for. Before anything
// is sent again the peer confirms that it has closed its end, too: so no byte of the old path can
// land behind a newer one. It returns at once; the transfers end by their deadline, when the peer
// turns out to be gone for good, or when the registration of the peer ends.
func (p *peer) replay(old *path, left []*transfer) {
	groups := map[int32][]*transfer{} // by the number of replays, which sets the pause
	for _, t := range left {
		n := t.replays.Load()
		groups[n] = append(groups[n], t)
	}
	if tired := groups[maxReplays]; tired != nil {
		delete(groups, maxReplays)
		for _, t := range tired {
			t.fail(fmt.Errorf("given up after %d replays, the last path broke: %w", maxReplays, t.loss()))
			t.end()
		}
	}
	p.mu.Lock()
	closed := p.closed
	if closed == nil {
		for _, group := range groups {
			for _, t := range group {
				p.parked[t] = struct{}{}
			}
		}
		p.work.Add(len(groups))
	}
	p.mu.Unlock()
	for n, group := range groups {
		if closed != nil {
			for _, t := range group {
				t.fail(closed)
				t.end()
			}
			continue
		}
		go func() {
			defer p.work.Done()
			p.rest(p.engine.pace.after(n))
			p.bringBack(old, group)
		}()
	}
}

// rest waits for d, or until the registration of the peer ends.
func (p *peer) rest(d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-p.stopped.Done():
	}
}

func (p *peer) bringBack(old *path, left []*transfer) {
	for attempt := int32(1); ; attempt++ {
		left = p.stillParked(left)
		if len(left) == 0 {
			return
		}
		err := p.confirm(old, left[0].session.route.backend)
		if err == nil {
			if left, err = p.resume(left); len(left) == 0 {
				return
			}
		}
		if p.hopeless(err) {
			p.giveUp(left, err)
			return
		}
		if attempt == maxReturns {
			p.giveUp(left, fmt.Errorf("given up after %d attempts to open a path: %w", attempt, err))
			return
		}
		p.engine.self.Log.Info("waiting for a path", "peer", p.desc.Key, "transfers", len(left), "reason", err)
		p.rest(p.engine.pace.after(attempt))
	}
}

// confirm has the peer close its end of old, once.
func (p *peer) confirm(old *path, b *backend) error {
	<-old.gone // so has this side
	if old.dropped.Load() {
		return nil
	}
	ctx, cancel := p.controlContext(b)
	defer cancel()
	if err := p.ctl.Drop(ctx, old.token); err != nil {
		return err
	}
	old.dropped.Store(true)
	return nil
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

// resume starts the transfers on the present path of their sessions and returns those for which
// there is none.
func (p *peer) resume(left []*transfer) ([]*transfer, error) {
	for i, t := range left {
		if r := t.session.local; !r.open() {
			t.fail(r.gone(t))
		}
		pl, err := t.session.ready()
		if err != nil {
			return left[i:], err
		}
		if !p.unpark(t) {
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

// stillParked drops the transfers that ended meanwhile.
func (p *peer) stillParked(left []*transfer) []*transfer {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := left[:0]
	for _, t := range left {
		if _, ok := p.parked[t]; ok {
			rest = append(rest, t)
		}
	}
	return rest
}

// unpark makes t the caller's, unless somebody else took it.
func (p *peer) unpark(t *transfer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.parked[t]
	delete(p.parked, t)
	return ok
}

// endParked ends the parked transfers for which why has a reason.
func (p *peer) endParked(why func(*transfer) error) {
	p.mu.Lock()
	var over []*transfer
	for t := range p.parked {
		if err := why(t); err != nil {
			t.fail(err)
			over = append(over, t)
			delete(p.parked, t)
		}
	}
	p.mu.Unlock()
	for _, t := range over {
		t.end()
	}
}

// hopeless tells whether no later attempt can do better: the peer's process is gone or another one,
// or is not ours any more.
func (p *peer) hopeless(err error) bool {
	nobodyThere := errors.Is(err, ErrUnreachable) && errors.Is(err, syscall.ECONNREFUSED)
	return p.stopped.Err() != nil || nobodyThere || errors.Is(err, control.ErrTurnedAway) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrBadState) || errors.Is(err, ErrClosed)
}

func (p *peer) giveUp(left []*transfer, err error) {
	for _, t := range left {
		if p.unpark(t) {
			t.fail(err)
			t.end()
		}
	}
}
