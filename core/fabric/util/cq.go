// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util/internal/waitfd"
)

// A Source holds completions outside of the queue until a reader looks, for example in a ring that
// the peer fills. It must be comparable.
type Source interface {
	// Drain moves its completions into the queue with TryPush, and keeps the rest once TryPush returns
	// false. Several readers may call it at once, without a lock of the queue.
	Drain()

	// Arm reports that a reader is about to park (true) or has returned (false). There may be several
	// readers. From Arm(true) on, every arrival must call CQ.Wake. The queue drains the source once
	// more after Arm(true).
	Arm(parking bool)
}

// A CQ is a bounded queue of completions: successes in order, with errors among them.
type CQ struct {
	bindings
	mu      sync.Mutex
	entries entries
	places  places
	closed  bool
	signals int
	parked  int
	wake    chan struct{}
	done    chan struct{}

	fd        waitfd.FD
	fdSources []Source // armed for TryWait

	sources list[Source]
	onSpace list[*func()]
	hook    atomic.Pointer[func()] // OnReady
}

var _ fabric.CQ = (*CQ)(nil)

// NewCQ makes a queue with places for size of our ops and for as many completions that peers cause.
func NewCQ(size int) (*CQ, error) {
	if size < 1 || size > 1<<24 {
		return nil, fmt.Errorf("open completion queue of %d entries, want 1 to %d: %w", size, 1<<24, fabric.ErrInvalid)
	}
	slots := 1
	for slots < 2*size {
		slots *= 2
	}
	q := &CQ{
		bindings: bindings{object: "completion queue"},
		places:   places{size: size},
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	q.entries.init(slots)
	return q, nil
}

// Reserve takes n places for ops before they are accepted, all or none. ErrAgain if fewer are free.
func (q *CQ) Reserve(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fabric.ErrClosed
	case !q.places.reserve(n):
		return fabric.ErrAgain
	}
	return nil
}

// Unreserve returns n places: of ops that were not accepted, or that succeeded without a
// completion.
func (q *CQ) Unreserve(n int) {
	q.mu.Lock()
	q.places.held -= n
	q.mu.Unlock()
}

// Push adds the success of an op that holds a place. A closed queue drops it.
func (q *CQ) Push(c fabric.Completion) {
	q.mu.Lock()
	if !q.closed {
		q.entries.add(c, entryOwn)
	}
	q.unlockAndWake()
}

// PushErr adds the failure of an op that holds a place. A closed queue drops it.
func (q *CQ) PushErr(e fabric.ErrEntry) {
	q.mu.Lock()
	if !q.closed && q.entries.add(e.Completion, entryErr) {
		q.entries.errs = append(q.entries.errs, e)
	}
	q.unlockAndWake()
}

// TryPush adds a completion that a peer caused. It returns false if there is no place. A closed
// queue drops the completion.
func (q *CQ) TryPush(c fabric.Completion) bool {
	q.mu.Lock()
	if !q.closed {
		if q.places.full() {
			q.mu.Unlock()
			return false
		}
		if q.entries.add(c, entryPassive) {
			q.places.passive++
		}
	}
	q.unlockAndWake()
	return true
}

// unlockAndWake releases mu, wakes a parked reader and a waiter on the descriptor, if any, and
// calls the hook.
func (q *CQ) unlockAndWake() {
	parked := q.parked
	q.fd.Fire()
	q.mu.Unlock()
	if parked > 0 {
		q.kick()
	}
	if fn := q.hook.Load(); fn != nil && q.entries.ready.Load() > 0 {
		(*fn)()
	}
}

func (q *CQ) kick() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// OnReady sets the hook, which the queue calls when there is something to read; see fabric.CQ. The
// hook does not cover completions in a Source, which enter the queue only when someone reads.
func (q *CQ) OnReady(fn func()) {
	if fn == nil {
		q.hook.Store(nil)
		return
	}
	q.hook.Store(&fn)
	if q.entries.ready.Load() > 0 {
		fn()
	}
}

// Hooked reports whether OnReady has set a hook. A hook may read with locks of a provider held. So
// while one is set, a Source that takes such locks leaves its completions to other readers.
func (q *CQ) Hooked() bool { return q.hook.Load() != nil }

// OnSpace sets a function that the queue calls when a place is free again after it refused a
// TryPush. The reader calls fn, without locks of the queue. The reader may be OnReady's hook, and
// thus a pusher that holds locks, so fn must only signal. remove removes fn; a call in progress may
// still be running when it returns.
func (q *CQ) OnSpace(fn func()) (remove func()) {
	q.onSpace.add(&fn)
	return func() { q.onSpace.remove(&fn) }
}

// AddSource makes the queue drain s until RemoveSource. It wakes parked readers so that they arm s.
func (q *CQ) AddSource(s Source) {
	q.sources.add(s)
	q.Wake() // after the list: a reader that parks finds s in it, or is woken
}

// RemoveSource removes s. A reader may still be using s when it returns.
func (q *CQ) RemoveSource(s Source) { q.sources.remove(s) }

// Wake makes a parked reader check the sources again.
func (q *CQ) Wake() {
	q.mu.Lock()
	q.unlockAndWake()
}

// Signal wakes one Wait: a current one, or else the next.
func (q *CQ) Signal() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return fabric.ErrClosed
	}
	waiting := q.parked
	if q.fd.Waiting() {
		waiting++
	}
	q.signals = min(q.signals+1, max(1, waiting))
	q.unlockAndWake()
	return nil
}

// Close frees the queue and its unread entries, or returns ErrBusy while an endpoint is bound.
func (q *CQ) Close() error {
	var armed []Source
	err := q.close(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.closed = true
		close(q.done)
		q.fd.Retire()
		armed, q.fdSources = q.fdSources, nil
	})
	arm(armed, false)
	return err
}

func arm(sources []Source, parking bool) {
	for _, s := range sources {
		s.Arm(parking)
	}
}

func drain(sources []Source) {
	for _, s := range sources {
		s.Drain()
	}
}
