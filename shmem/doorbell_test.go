// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"strings"
	"testing"
	"time"
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

func TestAwaitEnds(t *testing.T) {
	never := func() bool { return false }
	run(t, 1, Config{Timeout: 30 * time.Millisecond}, func(w *World) error {
		err := w.await(something, never)
		if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "something") {
			t.Errorf("no one came: %v", err)
		}
		fault := errors.New("PE 7 is dead")
		w.fault.Store(&fault)
		if err := w.await(something, never); !errors.Is(err, fault) {
			t.Errorf("the World is broken: %v", err)
		}
		if err := w.await(something, func() bool { return true }); err != nil {
			t.Errorf("it was there: %v", err)
		}
		w.fault.Store(nil)
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
