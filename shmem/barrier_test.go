// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mori/shmem/internal/team"
)

// A way is how PEs meet and reach each other. Each collective call is tested with each of them.
type way struct {
	name    string
	hosts   int
	central bool   // the hosts are made believe to be crowded
	nodes   string // NodeIDs: the hosts are real to the PEs. Else they are made believe in them
}

var ways = []way{{"dissemination", 1, false, ""}, {"central", 1, true, ""}, {"two hosts", 2, true, ""}, {"three hosts", 3, true, ""},
	{"two hosts apart", 2, false, "left|right"}, {"all apart", 2, false, "node %d"}}

// runWay is run, in a way.
func runWay(t *testing.T, n int, way way, cfg Config, f func(w *World) error) {
	cfg.NodeID = way.nodes
	run(t, n, cfg, func(w *World) error {
		if way.nodes == "" {
			pretend(w, way.hosts, way.central)
		}
		return f(w)
	})
}

// everyWay runs f on some numbers of PEs in each way, and, of those that are small, with heaps on
// GPUs.
func everyWay(t *testing.T, sizes []int, f func(t *testing.T, w *World) error) {
	for _, n := range sizes {
		for _, way := range ways {
			if way.hosts <= n {
				t.Run(fmt.Sprintf("%s/%d", way.name, n), func(t *testing.T) {
					runWay(t, n, way, Config{}, func(w *World) error { return f(t, w) })
				})
			}
		}
		if n <= 3 {
			t.Run(fmt.Sprintf("GPUs/%d", n), func(t *testing.T) {
				run(t, n, onGPU(t, Config{HeapSize: 16 << 20}), func(w *World) error { return f(t, w) })
			})
		}
	}
}

// pretend makes TeamWorld anew as if the PEs were on several hosts, every other one on the same, or
// their hosts were crowded.
func pretend(w *World, hosts int, central bool) {
	leader, crowd := make([]int, w.pes.N), make([]bool, w.pes.N)
	for pe := range leader {
		leader[pe], crowd[pe] = pe%hosts, central
	}
	team.Regroup(w.Teams, leader, crowd)
}

func TestNobodyLeavesABarrierBeforeAllHaveEntered(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		for _, way := range ways {
			if way.hosts > n {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", way.name, n), func(t *testing.T) {
				var entered [8]atomic.Int64
				runWay(t, n, way, Config{}, func(w *World) error {
					for i := int64(1); i <= 100; i++ {
						entered[w.MyPE()].Store(i)
						if err := w.BarrierAll(); err != nil {
							return err
						}
						for pe := range n {
							if got := entered[pe].Load(); got != i && got != i+1 {
								return fmt.Errorf("after barrier %d PE %d is at %d", i, pe, got)
							}
						}
						if i%25 == 0 && w.MyPE() == int(i/25)%n {
							time.Sleep(2 * time.Millisecond) // the others park
						}
					}
					return nil
				})
			})
		}
	}
}

func TestDifferentCallsAreNamed(t *testing.T) {
	everyWay(t, []int{2, 3, 8}, func(t *testing.T, w *World) error {
		for i := range 10 {
			var err error
			odd := i % w.NPEs()
			if w.MyPE() == odd {
				err = w.SyncAll()
			} else {
				err = w.BarrierAll()
			}
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), fmt.Sprintf("PE %d: sync", odd)) {
				return fmt.Errorf("PE %d calls sync, the others barrier: %w", odd, err)
			}
			if err := w.BarrierAll(); err != nil { // the team is as good as before
				return err
			}
		}
		return nil
	})
}

func TestWhoDoesNotComeIsNamed(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			const n, missing = 5, 3
			done := make(chan struct{})
			var left atomic.Int64
			runWay(t, n, way, Config{}, func(w *World) error {
				w.pes.Timeout = 100 * time.Millisecond
				defer func() { w.pes.Timeout = 20 * time.Second }()
				if w.MyPE() == missing {
					<-done
					return nil
				}
				err := w.BarrierAll()
				if left.Add(1) == n-1 {
					close(done)
				}
				if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), fmt.Sprintf("PE %d in call 1 ", missing)) {
					return fmt.Errorf("PE %d does not come: %w", missing, err)
				}
				if again := w.SyncAll(); !errors.Is(again, ErrTimeout) {
					return fmt.Errorf("the team is broken: %w", again)
				}
				return nil
			})
		})
	}
}

func TestBarrierOfABrokenWorld(t *testing.T) {
	run(t, 2, Config{}, func(w *World) error {
		if err := w.BarrierAll(); err != nil {
			return err
		}
		time.AfterFunc(20*time.Millisecond, func() { w.pes.Fail(errPretended) })
		if w.MyPE() > 0 {
			<-w.Broken()
			return nil
		}
		if err := w.BarrierAll(); !errors.Is(err, errPretended) {
			return fmt.Errorf("in the barrier: %w", err)
		}
		return nil
	})
}

func TestBarrierAllocatesNothing(t *testing.T) {
	everyWay(t, []int{2, 4}, func(t *testing.T, w *World) error {
		const rounds = 200
		if w.net != nil {
			return nil // a network may allocate
		}
		if w.MyPE() > 0 {
			for range rounds + 1 { // AllocsPerRun makes one more
				if err := w.BarrierAll(); err != nil {
					return err
				}
			}
			return nil
		}
		var err error
		if n := testing.AllocsPerRun(rounds, func() { err = errors.Join(err, w.BarrierAll()) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		return err
	})
}

func TestBarrierOfNoTeam(t *testing.T) {
	var none *Team
	if err := none.Barrier(); !errors.Is(err, ErrInvalid) {
		t.Errorf("barrier: %v", err)
	}
	if err := none.Sync(); !errors.Is(err, ErrInvalid) {
		t.Errorf("sync: %v", err)
	}
}
