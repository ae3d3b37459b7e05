// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
)

// total sums v over a team, in the given 16 bytes of symmetric memory.
func total(w *World, team *Team, room uint64, v uint64) (uint64, error) {
	if err := w.Atomic(AtomicSet, 8, room, v, w.pes.Me); err != nil {
		return 0, err
	}
	if err := team.Reduce(ReduceSum, fabric.Uint64, room+8, room, 1); err != nil {
		return 0, err
	}
	return w.FetchAtomic(AtomicFetch, 8, room+8, 0, 0, w.pes.Me)
}

func TestSplitStrided(t *testing.T) {
	cases := []struct {
		start, stride, size int
		members             []int
	}{{0, 1, 6, []int{0, 1, 2, 3, 4, 5}}, {1, 2, 3, []int{1, 3, 5}}, {4, -2, 3, []int{4, 2, 0}}, {5, -1, 2, []int{5, 4}}, {3, 0, 1, []int{3}}, {2, 99, 1, []int{2}}}
	everyWay(t, []int{6}, func(t *testing.T, w *World) error {
		room, err := w.Malloc(16)
		if err != nil {
			return err
		}
		for _, c := range cases {
			team, err := w.TeamWorld().SplitStrided(c.start, c.stride, c.size)
			if err != nil {
				return err
			}
			rank, want := slices.Index(c.members, w.MyPE()), uint64(0)
			if rank < 0 != (team == nil) || team.MyPE() != rank {
				return fmt.Errorf("PE %d of %v is %d of %v", w.MyPE(), c.members, team.MyPE(), team)
			}
			if team == nil {
				continue
			}
			for i, pe := range c.members {
				want += uint64(100 + pe)
				if got := team.WorldPE(i); got != pe || w.TeamWorld().TranslatePE(pe, team) != i || team.TranslatePE(i, w.TeamWorld()) != pe {
					return fmt.Errorf("member %d of %v is PE %d", i, c.members, got)
				}
			}
			if got, err := total(w, team, room, uint64(100+w.MyPE())); err != nil || got != want {
				return fmt.Errorf("the sum over %v is %d, want %d: %w", c.members, got, want, err)
			}
			if err := errors.Join(team.Barrier(), team.Destroy()); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestSplit2D(t *testing.T) {
	everyWay(t, []int{7}, func(t *testing.T, w *World) error { // rows of 3, 3 and 1
		row, column, err := w.TeamWorld().Split2D(3)
		if err != nil {
			return err
		}
		room, err := w.Malloc(16)
		if err != nil {
			return err
		}
		pe := w.MyPE()
		if row.MyPE() != pe%3 || column.MyPE() != pe/3 || row.NPEs() != []int{3, 3, 1}[pe/3] || column.NPEs() != []int{3, 2, 2}[pe%3] {
			return fmt.Errorf("PE %d is %d of %v and %d of %v", pe, row.MyPE(), row, column.MyPE(), column)
		}
		for range 20 { // teams of different members call as they like
			sum, err := total(w, row, room, uint64(pe))
			if want := []uint64{3, 12, 6}[pe/3]; err != nil || sum != want {
				return fmt.Errorf("the sum over the row is %d, want %d: %w", sum, want, err)
			}
			sum, err = total(w, column, room, uint64(pe))
			if want := []uint64{9, 5, 7}[pe%3]; err != nil || sum != want {
				return fmt.Errorf("the sum over the column is %d, want %d: %w", sum, want, err)
			}
		}
		return errors.Join(row.Destroy(), column.Destroy())
	})
}

func TestTeamOfATeam(t *testing.T) {
	everyWay(t, []int{8}, func(t *testing.T, w *World) error {
		odd, err := w.TeamWorld().SplitStrided(1, 2, 4)
		if err != nil || odd == nil {
			return err
		}
		inner, err := odd.SplitStrided(3, -2, 2) // PEs 7 and 3
		if err != nil {
			return err
		}
		if at := slices.Index([]int{7, 3}, w.MyPE()); inner.MyPE() != at {
			return fmt.Errorf("PE %d is %d, want %d", w.MyPE(), inner.MyPE(), at)
		}
		if inner != nil && (inner.WorldPE(0) != 7 || odd.TranslatePE(3, inner) != 0 || odd.TranslatePE(0, inner) != -1) {
			return fmt.Errorf("%v begins with PE %d", inner, inner.WorldPE(0))
		}
		if inner != nil {
			err = inner.Destroy()
		}
		return errors.Join(err, odd.Destroy())
	})
}

func TestTeamShared(t *testing.T) {
	for _, way := range ways[4:] {
		t.Run(way.name, func(t *testing.T) {
			runWay(t, 5, way, Config{}, func(w *World) error {
				heap, err := w.Malloc(8)
				if err != nil {
					return err
				}
				shared := w.TeamShared()
				for pe := range w.NPEs() {
					if mapped := w.Ptr(heap, pe) != 0; mapped != (w.TeamWorld().TranslatePE(pe, shared) >= 0) {
						return fmt.Errorf("PE %d is mapped: %v; %v", pe, mapped, shared)
					}
				}
				return shared.Barrier()
			})
		})
	}
}

func TestBadSplits(t *testing.T) {
	everyWay(t, []int{4}, func(t *testing.T, w *World) error {
		world := w.TeamWorld()
		for _, c := range [][3]int{{-1, 1, 1}, {4, 1, 1}, {0, 1, 0}, {0, 1, -3}, {0, 1, 5}, {0, 0, 2}, {2, 1, 3}, {1, -1, 3}, {0, 1 << 62, 3}, {0, -1 << 63, 2}, {0, 1, 1 << 62}} {
			if team, err := world.SplitStrided(c[0], c[1], c[2]); !errors.Is(err, ErrInvalid) || team != nil {
				return fmt.Errorf("split %v: %v, %w", c, team, err)
			}
		}
		if _, _, err := world.Split2D(0); !errors.Is(err, ErrInvalid) {
			return fmt.Errorf("split 2D: %w", err)
		}
		if _, err := world.SplitStrided(0, 1, 1+w.MyPE()/2); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "PEs 2, 3: split from PE 0 with stride 1 and 2 PEs") {
			return fmt.Errorf("different splits: %w", err)
		}
		if err := errors.Join(world.Destroy(), w.TeamShared().Destroy()); !errors.Is(err, ErrInvalid) {
			return fmt.Errorf("destroy the world: %w", err)
		}
		return world.Sync()
	})
}

func TestTeamsRunOut(t *testing.T) {
	everyWay(t, []int{3}, func(t *testing.T, w *World) error {
		for range 2 { // what is destroyed makes room for as many
			var all []*Team
			for range 64 - 2 {
				team, err := w.TeamWorld().SplitStrided(0, 1, 2)
				if err != nil {
					return fmt.Errorf("team %d: %w", len(all), err)
				}
				all = append(all, team)
			}
			// PE 2 has room for more, which helps only itself.
			if _, err := w.TeamWorld().SplitStrided(0, 1, 3); !errors.Is(err, ErrNoMemory) {
				return fmt.Errorf("one more: %w", err)
			}
			for _, team := range all {
				if err := team.Destroy(); err != nil {
					return err
				}
			}
		}
		team, err := w.TeamWorld().SplitStrided(0, 1, 3)
		if err != nil {
			return err
		}
		return errors.Join(team.Sync(), team.Destroy())
	})
}

// A slot is used again at once by a team with other members, while members of the last one may
// still look at its area.
func TestSlotsAreUsedAgain(t *testing.T) {
	everyWay(t, []int{4}, func(t *testing.T, w *World) error {
		room, err := w.Malloc(16)
		if err != nil {
			return err
		}
		for i := range 60 {
			start, size := i%3, 2+i%2
			team, err := w.TeamWorld().SplitStrided(start, 1, min(size, 4-start))
			if err != nil {
				return err
			}
			if team == nil {
				continue
			}
			if w.MyPE() == i%4 {
				time.Sleep(50 * time.Microsecond)
			}
			for range i % 4 { // epochs end odd and even
				if got, err := total(w, team, room, 1); err != nil || got != uint64(team.NPEs()) {
					return fmt.Errorf("%v counts %d: %w", team, got, err)
				}
			}
			if err := team.Destroy(); err != nil {
				return err
			}
			if err := team.Sync(); !errors.Is(err, ErrInvalid) {
				return fmt.Errorf("sync of a team that is destroyed: %w", err)
			}
		}
		return nil
	})
}

func TestNoTeam(t *testing.T) {
	var none *Team
	if none.MyPE() != -1 || none.NPEs() != -1 || none.WorldPE(0) != -1 || none.TranslatePE(0, none) != -1 || none.Destroy() != nil {
		t.Errorf("%v has members", none)
	}
	_, err := none.SplitStrided(0, 1, 1)
	_, _, err2 := none.Split2D(1)
	for _, err := range []error{err, err2, none.Broadcast(0, 0, 0, 0), none.FCollect(0, 0, 0), none.Collect(0, 0, 0), none.AllToAll(0, 0, 0),
		none.AllToAllS(0, 0, 1, 1, 0, 1), none.Reduce(ReduceSum, Float16, 0, 0, 0)} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("of no team: %v", err)
		}
	}
}
