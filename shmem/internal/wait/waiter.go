// SPDX-License-Identifier: MIT

package wait

import (
	"fmt"
	"runtime"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// The first cache line of the control block. It is written only when a PE parks or is woken, so
// reading it is cheap.
const (
	bellAt   = 0 // u32, changes with each wakeup
	sleepsAt = 4 // u32, marks of sleeping waiters

	onControl = 1 // a waiter for the control block
	onHeap    = 2 // a waiter for symmetric memory
)

// The control block of a PE, which every PE can access and users do not see. Words are written
// atomically. Words of different writers are on different lines.
const (
	ControlSize = 1 << 20
	TeamsAt     = 8192 // start of package team's areas, after the words of wakeups
)

const (
	quickLooks = 256                    // polls before a waiter does anything else: about a microsecond
	spinFor    = 30 * time.Microsecond  // parking and waking cost about 10 µs
	yieldLooks = 8                      // if there are more PEs than cores, the awaited PE needs this core
	firstSlice = 100 * time.Microsecond // longest time parked, at first
	slice      = 10 * time.Millisecond

	// With a network, each nap is an eighth longer than the one before, up to networkSlice. So a
	// change without a wakeup is seen after at most about an eighth of the wait more. With naps
	// that doubled, the reply to a PE of another host that had waited for 2 ms took 1.0 ms; now it
	// takes 0.27.
	networkSlice  = time.Millisecond
	networkGrowth = 8
)

// A Waker wakes PEs that wait for changes of their memory.
type Waker struct{ control *heap.Block }

// Sleeps reports whether PE pe, whose memory is mapped, is parked on symmetric memory.
func (w Waker) Sleeps(pe int) bool {
	return memory.Load32(w.control.At(pe)+sleepsAt)&onHeap != 0
}

// WakeControl wakes PE pe if it is parked on its control block. The change before must be an
// atomic, or a Fence must follow it: a plain store may become visible only after the check for
// sleepers.
func (w Waker) WakeControl(pe int) { w.wake(pe, onControl) }

// WakeHeap is WakeControl for symmetric memory.
func (w Waker) WakeHeap(pe int) { w.wake(pe, onHeap) }

func (w Waker) wake(pe int, who uint32) {
	at := w.control.At(pe)
	if at != 0 && memory.Load32(at+sleepsAt)&who != 0 && memory.And32(at+sleepsAt, ^who)&who != 0 {
		memory.Add32(at+bellAt, 1)
		memory.FutexWake(at+bellAt, 1<<30)
	}
}

// A Waiter lets this PE wait for changes of its memory.
type Waiter struct {
	Waker
	Crowded bool // this host has more PEs than cores

	pes *peers.Group
	net *remote.Network // nil: all changes come with a wakeup
}

// NewWaiter returns the Waiter of this PE.
func NewWaiter(pes *peers.Group, control *heap.Block, net *remote.Network) *Waiter {
	return &Waiter{Waker: Waker{control}, pes: pes, net: net}
}

// Post stores v at off of PE pe's control block, after earlier puts to that PE.
func (w *Waiter) Post(pe int, off, v uint64) error {
	if at := w.control.At(pe); at != 0 {
		memory.Store64(at+off, v)
		w.WakeControl(pe)
		return nil
	}
	if err := w.net.Fence(); err != nil {
		return err
	}
	return w.net.Update(pe, w.control.Regions(), off, fabric.AtomicWrite, 8, v)
}

// Await returns when ready returns true, or with an error that starts with what: the World broke,
// or its Timeout has passed. ready checks the control block. This goroutine calls it often, so it
// should only load a few words.
func (w *Waiter) Await(what func() string, ready func() bool) error {
	return w.awaitOn(onControl, w.pes.Timeout, what, ready)
}

// awaitHeap is Await for a change of symmetric memory.
func (w *Waiter) awaitHeap(what func() string, ready func() bool) error {
	return w.awaitOn(onHeap, w.pes.Timeout, what, ready)
}

// awaitCondition is awaitHeap for a condition. For GPU words each check is a copy, and kernels that
// change them send no wakeup, so it parks between checks from the start, with the naps of a
// network.
func (w *Waiter) awaitCondition(c *condition, ready func() bool) error {
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

func (w *Waiter) awaitOn(who uint32, timeout time.Duration, what func() string, ready func() bool) error {
	crowded := w.Crowded
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

// spin polls for a while, and yields to others.
func (w *Waiter) spin(crowded bool, ready func() bool) bool {
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
		memory.Yield() // the awaited PE may need this core, if others keep the rest busy
	}
	return false
}

// park sleeps until ready.
func (w *Waiter) park(who uint32, timeout time.Duration, ready func() bool) error {
	return w.parkFor(who, timeout, w.net != nil, ready)
}

// parkFor is park. silent: some changes come without a wakeup.
func (w *Waiter) parkFor(who uint32, timeout time.Duration, silent bool, ready func() bool) error {
	bell, sleeps := w.control.Base+bellAt, w.control.Base+sleepsAt
	began, most, growth := time.Now(), slice, time.Duration(1)
	asked := began
	if silent {
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
				return fmt.Errorf("%w after %v", peers.ErrTimeout, timeout)
			}
			nap = min(nap, left)
		}
		_ = memory.FutexWait(bell, seen, nap) // check again, woken or not
	}
}
