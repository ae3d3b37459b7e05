// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"strings"
	"testing"
	"time"

	"mori/core/memory"
)

func something() string { return "something" }

func TestPostWakesWhoParks(t *testing.T) {
	const rounds = 200
	run(t, 2, Config{}, func(w *World) error {
		other := 1 - w.MyPE()
		for i := uint64(1); i <= rounds; i++ {
			if w.MyPE() == int(i%2) {
				for range i % 3 { // some rounds find the other one parked
					time.Sleep(100 * time.Microsecond)
				}
				if err := w.post(other, 4096, i); err != nil {
					return err
				}
				continue
			}
			if err := w.await(something, func() bool { return w.cell(4096) == i }); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestOnlyThatIsWokenWhichSleeps: a ring changes the bell if somebody sleeps for it, and once.
func TestOnlyThatIsWokenWhichSleeps(t *testing.T) {
	run(t, 1, Config{}, func(w *World) error {
		bell, sleeps := w.control.Base+bellAt, w.control.Base+sleepsAt
		for _, c := range []struct{ before, ring, stir, after uint32 }{
			{0, 0, 0, 0},
			{onControl, 1, 0, 0},
			{onHeap, 0, 1, 0},
			{onHeap | onControl, 1, 1, 0},
		} {
			memory.Store32(sleeps, c.before)
			began := memory.Load32(bell)
			w.ring(0)
			w.ring(0)
			rung := memory.Load32(bell)
			w.stir(0)
			w.stir(0)
			stirred := memory.Load32(bell)
			if rung-began != c.ring || stirred-rung != c.stir || memory.Load32(sleeps) != c.after {
				t.Errorf("%+v: rung %d, stirred %d, then %d", c, rung-began, stirred-rung, memory.Load32(sleeps))
			}
		}
		return nil
	})
}

func TestAwaitEnds(t *testing.T) {
	never := func() bool { return false }
	run(t, 1, Config{Timeout: 30 * time.Millisecond}, func(w *World) error {
		err := w.await(something, never)
		if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "something") {
			t.Errorf("no one came: %v", err)
		}
		w.pes.Fail(errPretended)
		if err := w.await(something, never); !errors.Is(err, errPretended) {
			t.Errorf("the World is broken: %v", err)
		}
		if err := w.await(something, func() bool { return true }); err != nil {
			t.Errorf("it was there: %v", err)
		}
		return nil
	})
}

func TestAwaitAllocatesNothing(t *testing.T) {
	run(t, 1, Config{}, func(w *World) error {
		at := uint64(1)
		n := testing.AllocsPerRun(100, func() {
			looks := 0
			_ = w.await(something, func() bool { looks++; return looks > 300 && at == 1 })
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
		return nil
	})
}
