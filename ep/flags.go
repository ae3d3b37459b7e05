// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"strings"

	"mori/core/memory"
	"mori/ep/internal/plan"
)

// raise sets this rank's flag at every rank, after all that was put there before.
func (o *Op) raise(flags Region, number, signature uint64) error {
	at := o.base + o.layout.Line(flags, o.cfg.Rank)
	if err := o.world.Fence(); err != nil {
		return o.breaks(err)
	}
	for i := range o.cfg.WorldSize {
		// Each rank begins with its right neighbour, so that not all wait for the same one.
		pe := (o.cfg.Rank + 1 + i) % o.cfg.WorldSize
		if err := o.world.SignalSet(at, number<<plan.SignatureBits|signature, pe); err != nil {
			return o.breaks(fmt.Errorf("tell rank %d: %w", pe, err))
		}
	}
	return nil
}

// flag is the flag that a rank raised here.
func (o *Op) flag(flags Region, rank int) (number, signature uint64) {
	v := memory.Load64(o.base + o.layout.Line(flags, rank))
	return v >> plan.SignatureBits, v & (1<<plan.SignatureBits - 1)
}

// anyStamp makes await content with any.
const anyStamp = 1 << plan.SignatureBits

// await waits until the flags of all ranks that awaited tells have come to number, with this stamp.
func (o *Op) await(act string, flags Region, number, signature uint64, awaited func(rank int) bool) error {
	for rank := range o.cfg.WorldSize {
		if !awaited(rank) {
			continue
		}
		err := o.world.AwaitFor(o.opts.Timeout, func() string { return o.missing(act, flags, number, awaited) }, func() bool {
			came, _ := o.flag(flags, rank)
			return came >= number
		})
		if err != nil {
			return o.breaks(err)
		}
		if _, other := o.flag(flags, rank); signature != anyStamp && other != signature {
			return o.breaks(fmt.Errorf("%s: rank %d was called with another shape or type of rows than rank %d: %w", act, rank, o.cfg.Rank, ErrMismatch))
		}
	}
	return nil
}

// missing names the ranks that have not come, and how far they are.
func (o *Op) missing(act string, flags Region, number uint64, awaited func(rank int) bool) string {
	var late []string
	for rank := range o.cfg.WorldSize {
		if came, _ := o.flag(flags, rank); awaited(rank) && came < number {
			published, _ := o.flag(o.layout.Published, rank)
			ready, _ := o.flag(o.layout.Ready, rank)
			late = append(late, fmt.Sprintf("rank %d (at dispatch %d, combine %d)", rank, published, ready))
		}
	}
	return fmt.Sprintf("%s %d: these have not come: %s", act, number, strings.Join(late, ", "))
}

func everyone(int) bool { return true }
