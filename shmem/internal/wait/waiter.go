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
// that reading it costs next to nothing.
const (
	bellAt   = 0 // u32, changes with each wakeup
	sleepsAt = 4 // u32, who sleeps or is about to

	onControl = 1 // a waiter for the control block
	onHeap    = 2 // a waiter for symmetric memory
)

// The control block of a PE, which every PE reaches and no user sees. A word is written atomically.
// Words that different PEs write are on different lines.
const (
	ControlSize = 1 << 20
	TeamsAt     = 8192 // where package team has its areas, behind the words of wakeups
)

const (
	quickLooks = 256                    // in a row before a waiter looks at anything else: about a microsecond
	spinFor    = 30 * time.Microsecond  // a park and a wake-up cost about 10
	yieldLooks = 8                      // when there are more PEs than cores: whoever is awaited needs this core
	firstSlice = 100 * time.Microsecond // of parking
	slice      = 10 * time.Millisecond

	// With a network each nap is an eighth longer than the one before, up to networkSlice: a change
	// without a wakeup is seen after about an eighth of the wait more. With naps that doubled, the
	// answer to a PE of another host that had waited for 2 ms took 1.0 ms, and takes 0.27.
	networkSlice  = time.Millisecond
	networkGrowth = 8
)

// A Waker wakes PEs that wait for changes of their memory.
type Waker struct{ control *heap.Block }

// Sleeps reports whether PE pe, whose memory is mapped, is parked for a change of symmetric memory.
func (w Waker) Sleeps(pe int) bool {
	return memory.Load32(w.control.At(pe)+sleepsAt)&onHeap != 0
}

// WakeControl wakes PE pe if it is parked for a change of its control block. What was changed
// before must have been changed by an atomic, or a Fence is between: a plain store may still be on
// its way when the sleeper is looked for.
func (w Waker) WakeControl(pe int) { w.wake(pe, onControl) }

// WakeHeap is WakeControl for a change of symmetric memory.
func (w Waker) WakeHeap(pe int) { w.wake(pe, onHeap) }

func (w Waker) wake(pe int, who uint32) {
	at := w.control.At(pe)
	if at != 0 && memory.Load32(at+sleepsAt)&who != 0 && memory.And32(at+sleepsAt, ^who)&who != 0 {
		memory.Add32(at+bellAt, 1)
		memory.FutexWake(at+bellAt, 1<<30)
	}
}

// A Waiter has this PE wait for changes of its memory.
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

// Post stores v at off of PE pe's control block, after everything put to that PE before.
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

// Await returns when ready does, or with an error that begins with what was awaited: the World
// broke, or its Timeout is over. ready is about the control block. It is called often, by this
// goroutine, and should do no more than load a word or a few.
func (w *Waiter) Await(what func() string, ready func() bool) error {
	return w.awaitOn(onControl, w.pes.Timeout, what, ready)
}

// awaitHeap is Await of a change of symmetric memory.
func (w *Waiter) awaitHeap(what func() string, ready func() bool) error {
	return w.awaitOn(onHeap, w.pes.Timeout, what, ready)
}

// awaitCondition is awaitHeap of what compares. Of words of a GPU each look is a copy, and kernels
// that change them do not ring: it parks between the looks from the beginning, and looks again as
// if they came by a network.
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

// spin looks for a while, and lets others run.
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
		memory.Yield() // whoever is awaited may be on this core, if others keep the rest busy
	}
	return false
}

// park sleeps until ready.
func (w *Waiter) park(who uint32, timeout time.Duration, ready func() bool) error {
	return w.parkFor(who, timeout, w.net != nil, ready)
}

// parkFor is park. silent: there are changes without a wakeup.
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
		_ = memory.FutexWait(bell, seen, nap) // woken or not, look again
	}
}
