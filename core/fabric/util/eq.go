// SPDX-License-Identifier: MIT

package util

import (
	"context"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util/internal/waitfd"
)

// An EQ is a queue of connection events. An endpoint adds at most two, so the number of bound
// endpoints bounds the queue, and it never overflows.
type EQ struct {
	bindings
	mu     sync.Mutex
	events []fabric.Event
	closed bool
	fd     waitfd.FD
	wake   chan struct{}
	done   chan struct{}
}

var _ fabric.EQ = (*EQ)(nil)

// NewEQ makes a queue with initial space for size events.
func NewEQ(size int) (*EQ, error) {
	if size < 1 || size > 1<<20 {
		return nil, fmt.Errorf("open event queue of %d entries, want 1 to %d: %w", size, 1<<20, fabric.ErrInvalid)
	}
	return &EQ{
		bindings: bindings{object: "event queue"},
		events:   make([]fabric.Event, 0, size),
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}, nil
}

// Push adds an event. A closed queue drops it. On a nil EQ, Push does nothing.
func (q *EQ) Push(e fabric.Event) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.events = append(q.events, e)
		q.kick()
		q.fd.Fire()
	}
}

func (q *EQ) kick() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Read pops an event without blocking; see fabric.EQ.
func (q *EQ) Read() (fabric.Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fabric.Event{}, fabric.ErrClosed
	}
	if len(q.events) == 0 {
		return fabric.Event{}, fabric.ErrAgain
	}
	e := q.events[0]
	n := copy(q.events, q.events[1:])
	q.events[n] = fabric.Event{}
	if q.events = q.events[:n]; n > 0 {
		q.kick()
	}
	return e, nil
}

// Wait is a blocking Read; see fabric.EQ.
func (q *EQ) Wait(ctx context.Context) (fabric.Event, error) {
	for {
		if e, err := q.Read(); err != fabric.ErrAgain {
			return e, err
		}
		select {
		case <-q.wake:
		case <-q.done:
		case <-ctx.Done():
			return fabric.Event{}, ctx.Err()
		}
	}
}

// FD returns the descriptor to wait on; see fabric.WaitObject. It is closed like a CQ's.
func (q *EQ) FD() (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fd.Descriptor(q.closed)
}

// TryWait returns nil if FD will report the next event; see fabric.WaitObject.
func (q *EQ) TryWait() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		q.fd.Release()
		return fabric.ErrClosed
	case len(q.events) > 0:
		q.fd.Disarm()
		return fabric.ErrAgain
	}
	return q.fd.Arm()
}

// Close frees the queue, or returns ErrBusy while an endpoint is bound.
func (q *EQ) Close() error {
	return q.close(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.closed, q.events = true, nil
		close(q.done)
		q.fd.Retire()
	})
}
