// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"runtime"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/peers"
)

// How a PE waits. It looks a few times, since most waits are short; then it parks on the doorbell of its own control block, which
// whoever changes its memory rings. Two changes do not ring: raw stores through Ptr, and what comes over a network. Therefore nobody parks
// for longer than a slice at a time.
//
// Nobody loses a wake-up. A waiter reads the bell, says that it sleeps, looks for the last time, and parks if the bell is still what it
// read. A ringer changes memory, and if somebody sleeps, says that nobody does, changes the bell and wakes all. So the ringers of one sleep
// make one system call between them, however many there are.
//
// Who waits in a barrier is not woken by what is put meanwhile: waiters for words of the control block, and for the user's, say so apart.

// The first cache line of the control block. It is written only when somebody parks or is woken, so that looking at it costs next to nothing.
const (
	bellAt   = 0 // u32, changes with each ring
	sleepsAt = 4 // u32, who sleeps or is about to

	onControl = 1 // somebody does who waits for the control block
	onHeap    = 2 // for symmetric memory
)

const (
	quickLooks = 256                    // in a row before a waiter looks at anything else: about a microsecond
	spinFor    = 30 * time.Microsecond  // a park and a wake-up cost about 10
	yieldLooks = 8                      // when there are more PEs than cores: whoever is awaited needs this core
	firstSlice = 100 * time.Microsecond // of parking
	slice      = 10 * time.Millisecond

	// With a network each nap is an eighth longer than the one before, up to networkSlice: what nobody rings for is seen after about an eighth
	// of the wait more. With naps that doubled, the answer to a PE of another host that had waited for 2 ms took 1.0 ms, and takes 0.27.
	networkSlice  = time.Millisecond
	networkGrowth = 8
)

// waits reports whether PE pe, whose memory is mapped, is to be stirred.
func (w *World) waits(pe int) bool {
	return memory.Load32(w.control.At(pe)+sleepsAt)&onHeap != 0
}

// ring wakes PE pe if it is parked for a change of its control block, stir if for one of symmetric memory. What was changed before must have
// been changed by an atomic, or a Fence is between: a plain store may still be on its way when it is looked who sleeps.
func (w *World) ring(pe int) { w.wake(pe, onControl) }
func (w *World) stir(pe int) { w.wake(pe, onHeap) }

func (w *World) wake(pe int, who uint32) {
	at := w.control.At(pe)
	if at != 0 && memory.Load32(at+sleepsAt)&who != 0 && memory.And32(at+sleepsAt, ^who)&who != 0 {
		memory.Add32(at+bellAt, 1)
		memory.FutexWake(at+bellAt, 1<<30)
	}
}

// cell is the word at off of this PE's control block.
func (w *World) cell(off uint64) uint64 { return memory.Load64(w.control.Base + off) }

// post stores v at off of PE pe's control block, after everything put to that PE before.
func (w *World) post(pe int, off, v uint64) error {
	if at := w.control.At(pe); at != 0 {
		memory.Store64(at+off, v)
		w.ring(pe)
		return nil
	}
	if err := w.net.Fence(); err != nil {
		return err
	}
	return w.net.Update(pe, w.control.Regions(), off, fabric.AtomicWrite, 8, v)
}

// await returns when ready does, or with an error that begins with what was awaited: the World broke, or its Timeout is over.
// ready is about the control block. It is called often, by this goroutine, and should do no more than load a word or a few.
func (w *World) await(what func() string, ready func() bool) error {
	return w.awaitOn(onControl, w.pes.Timeout, what, ready)
}

// awaitHeap is await of a change of symmetric memory.
func (w *World) awaitHeap(what func() string, ready func() bool) error {
	return w.awaitOn(onHeap, w.pes.Timeout, what, ready)
}

// awaitCondition is awaitHeap of what compares. Of words of a GPU each look is a copy, and kernels that change them do not ring: it parks
// between the looks from the beginning, and looks again as if they came by a network.
func (w *World) awaitCondition(c *condition, ready func() bool) error {
	if c.mem == nil {
		return w.awaitHeap(c.String, ready)
	}
	var trouble error
	look := func() bool {
		trouble = c.refresh()
		return trouble != nil || ready()
	}
	err := w.pes.Check()
	if err == nil && !look() {
		err = w.parkFor(onHeap, w.pes.Timeout, true, look)
	}
	if trouble != nil {
		return trouble
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", c.String(), err)
	}
	return nil
}

// AwaitFor is for layers that build protocols of their own out of symmetric memory: it waits as all waits here do until ready, for at most
// timeout, where 0 is without end. Who makes ready true rings: by SignalSet, SignalAdd or an atomic. ready is called often, by this
// goroutine, and should do no more than load a word or a few; what says what is awaited, for the error.
func (w *World) AwaitFor(timeout time.Duration, what func() string, ready func() bool) error {
	return w.awaitOn(onHeap, timeout, what, ready)
}

func (w *World) awaitOn(who uint32, timeout time.Duration, what func() string, ready func() bool) error {
	crowded := w.crowded()
	for i := 0; i < quickLooks; i++ {
		if ready() {
			return nil
		}
		if crowded && i == quickLooks/16 {
			break
		}
	}
	err := w.pes.Check()
	if err == nil && !w.spin(crowded, ready) {
		err = w.park(who, timeout, ready)
	}
	if err != nil && !ready() {
		return fmt.Errorf("wait for %s: %w", what(), err)
	}
	return nil
}

// crowded reports whether this host has more PEs than cores.
func (w *World) crowded() bool { return w.teams.crowd[w.pes.Me] }

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
		memory.Yield() // whoever is awaited may be on this core, if others keep the rest busy
	}
	return false
}

// park sleeps until ready.
func (w *World) park(who uint32, timeout time.Duration, ready func() bool) error {
	return w.parkFor(who, timeout, w.net != nil, ready)
}

// parkFor is park. unheard: there are changes that nobody rings for.
func (w *World) parkFor(who uint32, timeout time.Duration, unheard bool, ready func() bool) error {
	bell, sleeps := w.control.Base+bellAt, w.control.Base+sleepsAt
	began, most, growth := time.Now(), slice, time.Duration(1)
	asked := began
	if unheard {
		most, growth = networkSlice, networkGrowth
	}
	for nap := min(firstSlice, most); ; nap = min(nap+nap/growth, most) {
		seen := memory.Load32(bell)
		memory.Or32(sleeps, who)
		if ready() {
			return nil
		}
		if err := w.pes.Check(); err != nil {
			return err
		}
		if ask := w.pes.Interrupt; ask != nil && time.Since(asked) >= peers.AskEvery {
			asked = time.Now()
			if err := ask(); err != nil {
				return err
			}
		}
		if timeout > 0 {
			left := timeout - time.Since(began)
			if left <= 0 {
				w.pes.NoteTimeout()
				return fmt.Errorf("%w after %v", ErrTimeout, timeout)
			}
			nap = min(nap, left)
		}
		_ = memory.FutexWait(bell, seen, nap) // woken or not, look again
	}
}

// drain waits until everything that was given to the network, or to a GPU for later, is done.
func (w *World) drain() error { return w.drainBy(w.pes.Deadline()) }

// drainBy is drain that gives up on the network at a deadline; zero is never.
func (w *World) drainBy(deadline time.Time) error {
	if w.gpu != nil {
		if err := w.gpu.Settle(); err != nil {
			return err
		}
	}
	if w.net == nil {
		return nil
	}
	return w.net.Quiet(deadline)
}
