// SPDX-License-Identifier: MIT

package peers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/bootstrap"
)

// AskEvery is the interval at which a waiting call calls Options.Interrupt.
const AskEvery = 100 * time.Millisecond

// Options shape a Group.
type Options struct {
	Timeout   time.Duration // time limit of collective calls and waits; 0: none
	Interrupt func() error  // an error ends a wait; nil: none
	Log       *slog.Logger
}

// A Group is this PE among all PEs. Safe for concurrent use.
type Group struct {
	Me, N int
	Options

	ranks bootstrap.Group

	fault   atomic.Pointer[error]
	dead    chan struct{} // closed on a fault
	closed  atomic.Bool
	overdue atomic.Bool                  // a wait for another PE has timed out
	check   atomic.Pointer[func() error] // finds out why the World ended; nil: nothing to check

	mu     sync.Mutex
	onFail []func()

	ended, watched chan struct{} // stop the goroutine that watches ranks; closed when it has stopped
}

// New takes ownership of a group of ranks; Close closes it. It watches for ranks that die.
func New(ranks bootstrap.Group, o Options) *Group {
	g := &Group{Me: ranks.Rank(), N: ranks.Size(), Options: o, ranks: ranks,
		dead: make(chan struct{}), ended: make(chan struct{}), watched: make(chan struct{})}
	if g.Log == nil {
		g.Log = slog.New(slog.DiscardHandler)
	}
	go g.watch()
	return g
}

// watch ends the World when a PE dies.
func (g *Group) watch() {
	defer close(g.watched)
	select {
	case <-g.ranks.Failed():
		g.Fail(g.ranks.Err())
	case <-g.ended:
	}
}

// Fail breaks the World permanently. Waiting and later calls get the first cause.
func (g *Group) Fail(cause error) {
	if !g.fault.CompareAndSwap(nil, &cause) {
		return
	}
	g.mu.Lock()
	for _, f := range g.onFail {
		f()
	}
	g.mu.Unlock()
	close(g.dead)
	g.Log.Error("shmem is broken", "pe", g.Me, "cause", cause)
}

// OnFail calls f when the World breaks, before waiting calls return; at once if it is already
// broken.
func (g *Group) OnFail(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onFail = append(g.onFail, f)
	if g.fault.Load() != nil {
		f()
	}
}

// OnCheck makes Check call f, which may call Fail.
func (g *Group) OnCheck(f func() error) { g.check.Store(&f) }

// Check returns why calls do not work any more, nil if they work.
func (g *Group) Check() error {
	if check := g.check.Load(); check != nil && !g.closed.Load() {
		if err := (*check)(); err != nil {
			g.Fail(err)
		}
	}
	if fault := g.fault.Load(); fault != nil {
		return *fault
	}
	if g.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Failed returns why the World is broken, nil if it is not. The cause wraps a *bootstrap.RankError
// if a PE has died.
func (g *Group) Failed() error {
	if fault := g.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// Broken returns a channel that is closed when the World breaks. Failed then returns the cause.
func (g *Group) Broken() <-chan struct{} { return g.dead }

// Ended returns a channel that is closed when Finalize begins to free what the World has.
func (g *Group) Ended() <-chan struct{} { return g.ended }

// NoteTimeout records that a wait for another PE has timed out, here or in a layer above. That PE
// may be stopped, so Finalize does not wait long for it.
func (g *Group) NoteTimeout() { g.overdue.Store(true) }

// TimedOut reports whether a wait for another PE has timed out.
func (g *Group) TimedOut() bool { return g.overdue.Load() }

// Shut makes all later calls fail, and reports whether it was the first call.
func (g *Group) Shut() (first bool) { return !g.closed.Swap(true) }

// Closed reports whether Finalize was called.
func (g *Group) Closed() bool { return g.closed.Load() }

// End stops watching ranks and closes the channel of Ended.
func (g *Group) End() {
	g.closed.Store(true)
	close(g.ended)
	<-g.watched
}

// Close closes the group of ranks.
func (g *Group) Close() error { return g.ranks.Close() }

// Bounded returns ctx with the deadline of collective calls.
func (g *Group) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, g.Timeout)
}

// Deadline returns the deadline of a wait that begins now. Zero means none.
func (g *Group) Deadline() (t time.Time) {
	if g.Timeout > 0 {
		t = time.Now().Add(g.Timeout)
	}
	return t
}

// HasPE returns nil if the World works and has a PE pe.
func (g *Group) HasPE(pe int) error {
	if err := g.Check(); err != nil {
		return err
	}
	if uint(pe) >= uint(g.N) {
		return fmt.Errorf("PE %d does not exist, want 0 to %d: %w", pe, g.N-1, ErrInvalid)
	}
	return nil
}

// timers are those of Receive.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

// Receive receives a value from c. It fails at the deadline (zero: none), when the World ends, and
// when Interrupt returns an error.
func Receive[T any](g *Group, c <-chan T, deadline time.Time) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	default:
	}
	timer := timers.Get().(*time.Timer)
	defer timers.Put(timer)
	defer timer.Stop()
	for {
		nap := time.Hour
		if !deadline.IsZero() {
			nap = time.Until(deadline)
		}
		if g.Interrupt != nil {
			nap = min(nap, AskEvery)
		}
		timer.Reset(max(nap, 0))
		select {
		case v = <-c:
			return v, nil
		case <-g.dead:
			return v, g.Failed()
		case <-timer.C:
		}
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			return v, ErrTimeout
		}
		if g.Interrupt != nil {
			if err := g.Interrupt(); err != nil {
				return v, err
			}
		}
	}
}
