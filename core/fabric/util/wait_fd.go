// SPDX-License-Identifier: MIT

package util

import (
	"runtime"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A waitFD is the descriptor of a wait object. Its methods are called with the queue's lock held,
// which also keeps the descriptor open while it is written. The zero value has none.
//
//	none ──open──▶ calm ──arm──▶ armed ──fire──▶ fired
//	                 ▲             │ disarm        │
//	                 └─────────────┴───────────────┘
type waitFD struct {
	fd    int
	state uint8
	late  runtime.Cleanup // closes fd after retire
}

// In this order: see waiting.
const (
	fdNone  = iota
	fdCalm  // nobody waits: no TryWait, or its last answer was not nil
	fdArmed // TryWait answered nil
	fdFired // and something came since: fd is readable
)

// open makes the descriptor, once.
func (w *waitFD) open() error {
	if w.state != fdNone {
		return nil
	}
	fd, err := sys.Event()
	if err != nil {
		return err
	}
	w.fd, w.state = fd, fdCalm
	return nil
}

// descriptor is WaitObject.FD.
func (w *waitFD) descriptor(closed bool) (int, error) {
	if closed {
		return -1, fabric.ErrClosed
	}
	if err := w.open(); err != nil {
		return -1, err
	}
	return w.fd, nil
}

// arm makes the descriptor, not readable, to be fired by what comes.
func (w *waitFD) arm() error {
	if err := w.open(); err != nil {
		return err
	}
	w.disarm()
	w.state = fdArmed
	return nil
}

// disarm takes back arm: the waiter is awake.
func (w *waitFD) disarm() {
	if w.state == fdFired {
		sys.EventClear(w.fd)
	}
	if w.state != fdNone {
		w.state = fdCalm
	}
}

// waiting reports whether somebody waits, or was woken and has not come back yet.
func (w *waitFD) waiting() bool { return w.state >= fdArmed }

// fire wakes the waiter, if there is one: one branch for queues that nobody polls.
func (w *waitFD) fire() {
	if w.state == fdArmed {
		w.set()
	}
}

func (w *waitFD) set() {
	w.state = fdFired
	sys.EventSet(w.fd)
}

// retire is for the queue's Close. A descriptor that is closed while a thread sleeps on it in
// epoll_wait leaves that thread asleep, so with a waiter it becomes readable and stays open until
// the waiter's next TryWait, which calls release, or until nobody can reach the queue.
func (w *waitFD) retire() {
	if !w.waiting() {
		w.release()
		return
	}
	w.fire()
	w.late = runtime.AddCleanup(w, func(fd int) { _ = sys.CloseFD(fd) }, w.fd)
}

// release closes the descriptor.
func (w *waitFD) release() {
	if w.state == fdNone {
		return
	}
	w.late.Stop()
	_ = sys.CloseFD(w.fd)
	w.state = fdNone
}
