// SPDX-License-Identifier: MIT

package wait

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
)

// oneHost are PEs that all map each other's memory.
type oneHost struct{}

func (oneHost) Maps(int) bool            { return true }
func (oneHost) Linked(int) bool          { return true }
func (oneHost) Owner(int) *device.Device { return nil }

// run makes the control blocks of n PEs and calls f on each.
func run(t *testing.T, n int, timeout time.Duration, f func(w *Waiter) error) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, ranks := range bootstrap.Local(n) {
		all.Add(1)
		go func() {
			defer all.Done()
			g := peers.New(ranks, peers.Options{Timeout: timeout})
			share, err := memory.NewSharer()
			if err != nil {
				errs[i] = err
				return
			}
			m := heap.NewMaker(g, heap.Resources{Share: share, Where: oneHost{}})
			control, err := m.New(context.Background(), heap.Spec{Name: "control", Size: ControlSize, Limit: ControlSize})
			if err == nil {
				err = f(NewWaiter(g, control, nil))
			}
			_, _ = g.Gather(context.Background(), nil)
			g.End()
			errs[i] = errors.Join(err, m.Drop(control), share.Close(), g.Close())
		}()
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func something() string { return "something" }

func TestPostWakesAParkedPE(t *testing.T) {
	const rounds = 200
	run(t, 2, 20*time.Second, func(w *Waiter) error {
		other := 1 - w.pes.Me
		for i := uint64(1); i <= rounds; i++ {
			if w.pes.Me == int(i%2) {
				for range i % 3 { // some rounds find the other one parked
					time.Sleep(100 * time.Microsecond)
				}
				if err := w.Post(other, 4096, i); err != nil {
					return err
				}
				continue
			}
			if err := w.Await(something, func() bool { return memory.Load64(w.control.Base+4096) == i }); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestOnlySleepersAreWoken: a wakeup changes the word if a waiter sleeps for it, and once.
func TestOnlySleepersAreWoken(t *testing.T) {
	run(t, 1, 20*time.Second, func(w *Waiter) error {
		bell, sleeps := w.control.Base+bellAt, w.control.Base+sleepsAt
		for _, c := range []struct{ before, control, heap, after uint32 }{
			{0, 0, 0, 0},
			{onControl, 1, 0, 0},
			{onHeap, 0, 1, 0},
			{onHeap | onControl, 1, 1, 0},
		} {
			memory.Store32(sleeps, c.before)
			began := memory.Load32(bell)
			w.WakeControl(0)
			w.WakeControl(0)
			rung := memory.Load32(bell)
			w.WakeHeap(0)
			w.WakeHeap(0)
			then := memory.Load32(bell)
			if rung-began != c.control || then-rung != c.heap || memory.Load32(sleeps) != c.after {
				t.Errorf("%+v: woken %d times for the control block, %d for the heap, then %d", c, rung-began, then-rung, memory.Load32(sleeps))
			}
		}
		return nil
	})
}

func TestAwaitEnds(t *testing.T) {
	never := func() bool { return false }
	run(t, 1, 30*time.Millisecond, func(w *Waiter) error {
		err := w.Await(something, never)
		if !errors.Is(err, peers.ErrTimeout) || !strings.Contains(err.Error(), "something") {
			t.Errorf("no one came: %v", err)
		}
		dead := errors.New("PE 7 is dead")
		w.pes.Fail(dead)
		if err := w.Await(something, never); !errors.Is(err, dead) {
			t.Errorf("the World is broken: %v", err)
		}
		if err := w.Await(something, func() bool { return true }); err != nil {
			t.Errorf("it was there: %v", err)
		}
		return nil
	})
}

func TestAwaitAllocatesNothing(t *testing.T) {
	run(t, 1, 20*time.Second, func(w *Waiter) error {
		at := uint64(1)
		n := testing.AllocsPerRun(100, func() {
			looks := 0
			_ = w.Await(something, func() bool { looks++; return looks > 300 && at == 1 })
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
		return nil
	})
}
