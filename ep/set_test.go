// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"testing"
)

func TestOpsThatAllRanksDroppedAreFreedByTheNext(t *testing.T) {
	cfg := DefaultConfig()
	cfg.WorldSize, cfg.HiddenDim, cfg.MaxTokenTypeSize, cfg.MaxNumInpToken, cfg.ExpertsPerRank, cfg.TopK = 3, 8, 4, 4, 2, 2
	together(t, cfg, Options{Threads: 1}, nil, func(j job) error {
		w, cfg := j.world, j.cfg
		opts := Options{Threads: 1, Timeout: j.opts.Timeout}
		used := func() uint64 { return w.Describe().Heap.Used }
		set := NewSet(w)
		first, err := set.New(cfg, opts)
		if err != nil {
			return err
		}
		second, err := set.New(cfg, opts)
		if err != nil {
			return err
		}
		two := used()
		set.Drop(second)
		if cfg.Rank == 1 {
			set.Drop(first) // the others still use it
		}
		third, err := set.New(cfg, opts)
		if err != nil {
			return err
		}
		if used() != two {
			return fmt.Errorf("one op was dropped by all and one was made, and %d bytes became %d", two, used())
		}
		if second.Base() != 0 || first.Base() == 0 || third.Base() == 0 {
			return fmt.Errorf("the wrong op was freed: %#x %#x %#x", first.Base(), second.Base(), third.Base())
		}
		set.Drop(first)
		set.Drop(second) // again
		fourth, err := set.New(cfg, opts)
		if err != nil {
			return err
		}
		if first.Base() != 0 || used() != two {
			return fmt.Errorf("an op that all have dropped by now is still there: %d bytes, want %d", used(), two)
		}
		if err := set.Close(third); err != nil {
			return err
		}
		if _, err := fourth.Dispatch(Batch{Hidden: 8, Type: Float32}); err != nil {
			return err
		}
		return set.Close(fourth)
	})
}
