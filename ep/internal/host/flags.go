// SPDX-License-Identifier: MIT

package host

import (
	"fmt"
	"strings"
	"time"

	"mori/core/memory"
	"mori/ep/internal/call"
	"mori/ep/internal/plan"
)

// flags are the words by which ranks wait for each other: those that this rank sets on every rank,
// and those that every rank sets here.
type flags struct {
	*buffers
	timeout time.Duration
	state   *call.State
}

// set sets this rank's flag on every rank, after all that it wrote there before.
func (f *flags) set(region plan.Region, number, signature uint64) error {
	at := f.base + f.layout.Line(region, f.cfg.Rank)
	if err := f.world.Fence(); err != nil {
		return f.state.Break(err)
	}
	for i := range f.cfg.WorldSize {
		// Each rank begins with its right neighbour, so that not all wait for the same one.
		pe := (f.cfg.Rank + 1 + i) % f.cfg.WorldSize
		if err := f.world.SignalSet(at, number<<plan.SignatureBits|signature, pe); err != nil {
			return f.state.Break(fmt.Errorf("set a flag of rank %d: %w", pe, err))
		}
	}
	return nil
}

// get returns the flag that a rank set here.
func (f *flags) get(region plan.Region, rank int) (number, signature uint64) {
	v := memory.Load64(f.base + f.layout.Line(region, rank))
	return v >> plan.SignatureBits, v & (1<<plan.SignatureBits - 1)
}

// anySignature makes await accept each signature.
const anySignature = 1 << plan.SignatureBits

// await waits until the flags of all ranks for which awaited is true have reached number, with this
// signature.
func (f *flags) await(act string, region plan.Region, number, signature uint64, awaited func(rank int) bool) error {
	for rank := range f.cfg.WorldSize {
		if !awaited(rank) {
			continue
		}
		missing := func() string { return f.missing(act, region, number, awaited) }
		err := f.world.AwaitFor(f.timeout, missing, func() bool {
			came, _ := f.get(region, rank)
			return came >= number
		})
		if err != nil {
			return f.state.Break(err)
		}
		if _, other := f.get(region, rank); signature != anySignature && other != signature {
			return f.state.Break(fmt.Errorf("%s: rank %d was called with another shape or type of rows than rank %d: %w",
				act, rank, f.cfg.Rank, plan.ErrMismatch))
		}
	}
	return nil
}

// missing names the ranks that have not come, and the calls that they are in.
func (f *flags) missing(act string, region plan.Region, number uint64, awaited func(rank int) bool) string {
	var late []string
	for rank := range f.cfg.WorldSize {
		if came, _ := f.get(region, rank); awaited(rank) && came < number {
			published, _ := f.get(f.layout.Published, rank)
			ready, _ := f.get(f.layout.Ready, rank)
			late = append(late, fmt.Sprintf("rank %d (at dispatch %d, combine %d)", rank, published, ready))
		}
	}
	return fmt.Sprintf("%s %d: no data arrived from %s", act, number, strings.Join(late, ", "))
}

func everyone(int) bool { return true }
