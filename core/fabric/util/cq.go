// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util/internal/waitfd"
)

// A Source keeps completions outside of the queue until somebody looks, such as in a ring that the
// peer fills. It must be comparable.
type Source interface {
	// Drain moves what is there into the queue by TryPush, and leaves the rest when that answers
	// false. It is called by several readers at once and without any lock of the queue.
	Drain()

	// Arm reports that a reader is about to park (true) or has returned (false), for as many readers
	// as there are. From Arm(true) on an arrival must lead to CQ.Wake; the queue drains once more
	// after it.
	Arm(parking bool)
}

// A CQ is a bounded queue of completions: successes in order and errors among them.
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

// NewCQ makes a queue with places for size own ops, and for as many completions that peers cause.
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

// Reserve takes n places for ops about to be accepted, all or none. ErrAgain if there are not as
// many.
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

// Unreserve gives n places back: ops that were not accepted, or that succeeded in silence.
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

// TryPush adds a completion that a peer caused, or reports that there is no place for it now. A
// closed queue drops it.
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

// unlockAndWake releases mu, wakes a parked reader and a waiter on the descriptor, if there is one,
// and calls the hook.
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

// OnReady sets the hook that is called when there is something to read; see fabric.CQ. What a
// Source keeps is not in the queue before somebody reads.
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

// Hooked reports whether OnReady's hook is set. A hook may read with locks of a provider held, so a
// Source that takes such locks leaves what it has to others then.
func (q *CQ) Hooked() bool { return q.hook.Load() != nil }

// OnSpace makes the queue call fn, from a reader and without locks of its own, when there is a
// place again after TryPush was refused. A reader may be OnReady's hook, and so a pusher, with the
// locks that it holds: fn does no more than signal. remove ends that; a call under way may still be
// running when it returns.
func (q *CQ) OnSpace(fn func()) (remove func()) {
	q.onSpace.add(&fn)
	return func() { q.onSpace.remove(&fn) }
}

// AddSource makes the queue look into s, until RemoveSource. Readers that are parked now are woken
// to arm it.
func (q *CQ) AddSource(s Source) {
	q.sources.add(s)
	q.Wake() // after the list: a reader that parks finds s in it, or is woken
}

// RemoveSource forgets s. A reader that is in it may still be when RemoveSource returns.
func (q *CQ) RemoveSource(s Source) { q.sources.remove(s) }

// Wake makes a parked reader look into the sources again.
func (q *CQ) Wake() {
	q.mu.Lock()
	q.unlockAndWake()
}

// Signal wakes one Wait, now or the next to come.
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

// Close frees the queue, or answers ErrBusy while an endpoint is bound. Unread entries are gone.
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
