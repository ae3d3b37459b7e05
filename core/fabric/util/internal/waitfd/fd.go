// SPDX-License-Identifier: MIT

// Package waitfd has the descriptor that an event loop waits on for a queue or a counter.
package waitfd

import (
	"runtime"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// An FD is the descriptor of a wait object. Its methods are called with the object's lock held,
// which also keeps the descriptor open while it is written. The zero value has none.
//
//	none ──open──▶ calm ──Arm──▶ armed ──Fire──▶ fired
//	                 ▲             │ Disarm        │
//	                 └─────────────┴───────────────┘
type FD struct {
	fd    int
	state uint8
	late  runtime.Cleanup // closes fd after Retire
}

// In this order: see Waiting.
const (
	none  = iota
	calm  // no waiter: no TryWait, or its last answer was not nil
	armed // TryWait answered nil
	fired // and something came since: fd is readable
)

// open makes the descriptor, once.
func (w *FD) open() error {
	if w.state != none {
		return nil
	}
	fd, err := sys.Event()
	if err != nil {
		return err
	}
	w.fd, w.state = fd, calm
	return nil
}

// Descriptor is WaitObject.FD of an object that may be closed.
func (w *FD) Descriptor(closed bool) (int, error) {
	if closed {
		return -1, fabric.ErrClosed
	}
	if err := w.open(); err != nil {
		return -1, err
	}
	return w.fd, nil
}

// Arm makes the descriptor, not readable, to be fired by what comes.
func (w *FD) Arm() error {
	if err := w.open(); err != nil {
		return err
	}
	w.Disarm()
	w.state = armed
	return nil
}

// Disarm takes back Arm: the waiter is awake.
func (w *FD) Disarm() {
	if w.state == fired {
		sys.EventClear(w.fd)
	}
	if w.state != none {
		w.state = calm
	}
}

// Armed reports whether a waiter is to be woken.
func (w *FD) Armed() bool { return w.state == armed }

// Waiting reports whether there is a waiter, which may have been woken and not come back yet.
func (w *FD) Waiting() bool { return w.state >= armed }

// Fire wakes the waiter, if there is one. Without one it costs a branch.
func (w *FD) Fire() {
	if w.state == armed {
		w.set()
	}
}

func (w *FD) set() {
	w.state = fired
	sys.EventSet(w.fd)
}

// Retire ends the use of the descriptor when its object closes. If a descriptor is closed while a
// thread sleeps on it in epoll_wait, that thread sleeps on. So with a waiter it becomes readable.
// It stays open until the waiter's next TryWait, which calls Release, or until nobody can reach the
// object.
func (w *FD) Retire() {
	if !w.Waiting() {
		w.Release()
		return
	}
	w.Fire()
	w.late = runtime.AddCleanup(w, func(fd int) { _ = sys.CloseFD(fd) }, w.fd)
}

// Release closes the descriptor.
func (w *FD) Release() {
	if w.state == none {
		return
	}
	w.late.Stop()
	_ = sys.CloseFD(w.fd)
	w.state = none
}
