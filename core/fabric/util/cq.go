// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
)

// A Source keeps completions outside of the queue until somebody looks, such as in a ring that the
// peer fills.
type Source interface {
	// Drain moves what is there into the queue by TryPush, and leaves the rest when that answers
	// false. It is called by several readers at once and without any lock of the queue.
	Drain()

	// Arm reports that a reader is about to park (true) or has returned (false), for as many readers
	// as there are. From Arm(true) on an arrival must lead to CQ.Wake; the queue drains once more
	// after it.
	Arm(parking bool)
}

// What an entry of the ring is, and whose place it takes.
const (
	entryOwn     = iota // success in a reserved place
	entryErr            // error in a reserved place; its text is the head of errs
	entryPassive        // success in a place of TryPush
)

// A CQ is a bounded queue of completions: successes in order and errors among them.
type CQ struct {
	mu      sync.Mutex
	ring    []fabric.Completion // length is a power of two
	tags    []uint8
	head    uint64 // next to read
	tail    uint64 // next to fill
	errs    []fabric.ErrEntry
	held    int // reserved places: outstanding ops and unread entries
	passive int // unread entries of TryPush
	starved bool
	overrun bool
	closed  bool
	bound   int
	signals int
	parked  int
	onClose func()
	onSpace []*func() // replaced, never changed
	sources []Source  // replaced, never changed

	fd        waitFD
	fdSources []Source // armed for TryWait

	size  int
	hook  atomic.Pointer[func()] // OnReady
	ready atomic.Int64           // entries in the ring, read without mu
	nsrc  atomic.Int32           // sources, read without mu
	wake  chan struct{}
	done  chan struct{}
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
	return &CQ{
		ring: make([]fabric.Completion, slots),
		tags: make([]uint8, slots),
		size: size,
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}, nil
}

// Reserve takes n places for ops about to be accepted, all or none. ErrAgain if there are not as
// many.
func (q *CQ) Reserve(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fabric.ErrClosed
	case q.held+n > q.size:
		return fabric.ErrAgain
	}
	q.held += n
	return nil
}

// Unreserve gives n places back: ops that were not accepted, or that succeeded in silence.
func (q *CQ) Unreserve(n int) {
	q.mu.Lock()
	q.held -= n
	q.mu.Unlock()
}

// Push adds the success of an op that holds a place.
func (q *CQ) Push(c fabric.Completion) {
	q.mu.Lock()
	q.add(c, entryOwn)
	q.unlockAndWake()
}

// PushErr adds the failure of an op that holds a place.
func (q *CQ) PushErr(e fabric.ErrEntry) {
	q.mu.Lock()
	if q.add(e.Completion, entryErr) {
		q.errs = append(q.errs, e)
	}
	q.unlockAndWake()
}

// TryPush adds a completion that a peer caused, or reports that there is no place for it now.
func (q *CQ) TryPush(c fabric.Completion) bool {
	q.mu.Lock()
	if q.passive >= q.size && !q.closed {
		q.starved = true
		q.mu.Unlock()
		return false
	}
	if q.add(c, entryPassive) {
		q.passive++
	}
	q.unlockAndWake()
	return true
}

// add reports whether the entry is in; a closed queue swallows it. With mu held.
func (q *CQ) add(c fabric.Completion, tag uint8) bool {
	if q.closed {
		return false
	}
	if q.tail-q.head == uint64(len(q.ring)) {
		q.overrun = true // a provider pushed without Reserve
		return false
	}
	i := q.tail & uint64(len(q.ring)-1)
	q.ring[i], q.tags[i] = c, tag
	q.tail++
	q.ready.Store(int64(q.tail - q.head))
	return true
}

// unlockAndWake releases mu, wakes a parked reader and a waiter on the descriptor, if there is one,
// and calls the hook.
func (q *CQ) unlockAndWake() {
	parked := q.parked
	q.fd.fire()
	q.mu.Unlock()
	if parked > 0 {
		q.kick()
	}
	if fn := q.hook.Load(); fn != nil && q.ready.Load() > 0 {
		(*fn)()
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
	if q.ready.Load() > 0 {
		fn()
	}
}

func (q *CQ) kick() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// OnSpace makes the queue call fn, from a reader and without locks of its own, when there is a
// place again after TryPush was refused. A reader may be OnReady's hook, and so a pusher,
// with the locks that it holds: fn does no more than signal. remove ends that; a call under way may
// still be running when it returns.
func (q *CQ) OnSpace(fn func()) (remove func()) {
	p := &fn
	q.mu.Lock()
	defer q.mu.Unlock()
	q.onSpace = append(slices.Clone(q.onSpace), p)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.onSpace = slices.DeleteFunc(slices.Clone(q.onSpace), func(f *func()) bool { return f == p })
	}
}

// AddSource makes the queue look into s, until RemoveSource. Readers that are parked now are woken
// to arm it.
func (q *CQ) AddSource(s Source) {
	q.mu.Lock()
	q.sources = append(slices.Clone(q.sources), s)
	q.nsrc.Store(int32(len(q.sources)))
	q.mu.Unlock()
	q.Wake()
}

// RemoveSource forgets s, which must be comparable. A reader that is in it may still be when
// RemoveSource returns.
func (q *CQ) RemoveSource(s Source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sources = slices.DeleteFunc(slices.Clone(q.sources), func(t Source) bool { return s == t })
	q.nsrc.Store(int32(len(q.sources)))
}

// Wake makes a parked reader look into the sources again.
func (q *CQ) Wake() {
	q.mu.Lock()
	q.unlockAndWake()
}

// Bind counts an endpoint that uses the queue, ErrClosed if it is closed. Close answers ErrBusy
// until Unbind.
func (q *CQ) Bind() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("bind completion queue: %w", fabric.ErrClosed)
	}
	q.bound++
	return nil
}

// Unbind undoes one Bind.
func (q *CQ) Unbind() {
	q.mu.Lock()
	q.bound--
	q.mu.Unlock()
}

// OnClose sets what Close calls once the queue is closed, such as Parent.Leave. It is set before
// the queue is given away.
func (q *CQ) OnClose(fn func()) { q.onClose = fn }

// Signal wakes one Wait, now or the next to come.
func (q *CQ) Signal() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return fabric.ErrClosed
	}
	waiting := q.parked
	if q.fd.waiting() {
		waiting++
	}
	q.signals = min(q.signals+1, max(1, waiting))
	q.unlockAndWake()
	return nil
}

// Close frees the queue, or answers ErrBusy while an endpoint is bound. Unread entries are gone.
func (q *CQ) Close() error {
	armed, err := q.close()
	arm(armed, false)
	return err
}

func (q *CQ) close() (armed []Source, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, nil
	}
	if q.bound > 0 {
		return nil, fmt.Errorf("close completion queue with %d bindings: %w", q.bound, fabric.ErrBusy)
	}
	q.closed = true
	close(q.done)
	q.fd.retire()
	if q.onClose != nil {
		q.onClose()
	}
	armed, q.fdSources = q.fdSources, nil
	return armed, nil
}
