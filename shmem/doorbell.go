// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
)

// How a PE waits. It looks a few times, since most waits are short; then it parks on the doorbell of its own control block, which
// whoever changes its memory rings. Nobody loses a wake-up: a waiter counts itself before it looks for the last time, and a
// ringer changes memory before it looks whether anybody waits. Two changes do not ring: raw stores through Ptr, and what comes
// over a network. Therefore nobody parks for longer than a slice at a time.

// The first cache line of the control block. It is written only while somebody parks, so that looking at it costs its writers nothing.
const (
	bellAt    = 0 // u32, changes with each ring
	waitersAt = 4 // u32, how many threads of the PE park or are about to
)

const (
	quickLooks   = 256                    // in a row before a waiter looks at anything else: about a microsecond
	spinFor      = 30 * time.Microsecond  // a park and a wake-up cost about 10
	yieldLooks   = 8                      // when there are more PEs than cores: whoever is awaited needs this core
	firstSlice   = 100 * time.Microsecond // of parking
	slice        = 10 * time.Millisecond
	networkSlice = time.Millisecond
	askEvery     = 100 * time.Millisecond // whether to go on
)

// cores is how many threads can run at once.
var cores = sync.OnceValue(func() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) })

// ring wakes PE pe if it is parked. What was changed before must have been changed by an atomic: a plain store may still be on its way
// when the waiters are looked at.
func (w *World) ring(pe int) {
	if at := w.control.peers[pe].mapped; at != 0 && memory.Load32(at+waitersAt) != 0 {
		memory.Add32(at+bellAt, 1)
		memory.FutexWake(at+bellAt, 1<<30)
	}
}

// cell is the word at off of this PE's control block.
func (w *World) cell(off uint64) uint64 { return memory.Load64(w.control.base + off) }

// post stores v at off of PE pe's control block, after everything put to that PE before.
func (w *World) post(pe int, off, v uint64) error {
	if at := w.control.peers[pe].mapped; at != 0 {
		memory.Store64(at+off, v)
		w.ring(pe)
		return nil
	}
	if err := w.net.fence(); err != nil {
		return err
	}
	return w.net.update(pe, w.control, off, fabric.AtomicWrite, 8, v)
}

// broken is why nothing works any more, or nil.
func (w *World) broken() error {
	if fault := w.fault.Load(); fault != nil {
		return *fault
	}
	if w.closed.Load() {
		return ErrClosed
	}
	return nil
}

// await returns when ready does, or with an error that begins with what was awaited: the World broke, or its Timeout is over.
// ready is called often, by this goroutine, and should do no more than load a word or a few.
func (w *World) await(what func() string, ready func() bool) error {
	return w.AwaitFor(w.cfg.Timeout, what, ready)
}

// AwaitFor is for layers that build protocols of their own out of symmetric memory: it waits as all waits here do until ready, for at most
// timeout, where 0 is without end. Who makes ready true rings: by SignalSet, SignalAdd or an atomic. ready is called often, by this
// goroutine, and should do no more than load a word or a few; what says what is awaited, for the error.
func (w *World) AwaitFor(timeout time.Duration, what func() string, ready func() bool) error {
	crowded := w.crowded()
	for i := 0; i < quickLooks; i++ {
		if ready() {
			return nil
		}
		if crowded && i == quickLooks/16 {
			break
		}
	}
	err := w.broken()
	if err == nil && !w.spin(crowded, ready) {
		err = w.park(timeout, ready)
	}
	if err != nil && !ready() {
		return fmt.Errorf("wait for %s: %w", what(), err)
	}
	return nil
}

// crowded reports whether this host has more PEs than cores.
func (w *World) crowded() bool {
	near, most := 0, cores()
	if w.n <= most {
		return false
	}
	for pe := range w.control.peers {
		if w.control.peers[pe].mapped != 0 {
			near++
		}
		if near > most {
			return true
		}
	}
	return false
}

// spin looks for a while, and lets others run.
func (w *World) spin(crowded bool, ready func() bool) bool {
	if crowded {
		for range yieldLooks {
			runtime.Gosched()
			memory.Yield()
			if ready() {
				return true
			}
		}
		return false
	}
	for begin := time.Now(); time.Since(begin) < spinFor; {
		for range quickLooks {
			if ready() {
				return true
			}
		}
		runtime.Gosched()
	}
	return false
}

// park sleeps until ready.
func (w *World) park(timeout time.Duration, ready func() bool) error {
	bell, waiters := w.control.base+bellAt, w.control.base+waitersAt
	memory.Add32(waiters, 1)
	defer memory.Add32(waiters, ^uint32(0))
	began, most := time.Now(), slice
	asked := began
	if w.net != nil {
		most = networkSlice
	}
	for nap := min(firstSlice, most); ; nap = min(2*nap, most) {
		seen := memory.Load32(bell)
		if ready() {
			return nil
		}
		if err := w.broken(); err != nil {
			return err
		}
		if ask := w.cfg.Interrupt; ask != nil && time.Since(asked) >= askEvery {
			asked = time.Now()
			if err := ask(); err != nil {
				return err
			}
		}
		if timeout > 0 {
			left := timeout - time.Since(began)
			if left <= 0 {
				return fmt.Errorf("%w after %v", ErrTimeout, timeout)
			}
			nap = min(nap, left)
		}
		_ = memory.FutexWait(bell, seen, nap) // woken or not, look again
	}
}

// drain waits until everything that was given to the network is done.
func (w *World) drain() error {
	if w.net == nil {
		return nil
	}
	return w.net.quiet(w.deadline())
}
