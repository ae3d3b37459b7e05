// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"strings"

	"mori/core/memory"
)

// A flag says which call its writer has come to, and a stamp of what it was called with, so that ranks that disagree
// are told instead of reading each other's rows wrongly.
//
//	number of the call << stampBits | stamp
const stampBits = 16

// stamp mixes numbers into one that fits beside the number of a call (FNV-1a over their bytes, folded).
func stamp(values ...uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, v := range values {
		for range 8 {
			h = (h ^ v&0xff) * 1099511628211
			v >>= 8
		}
	}
	h ^= h >> 32
	return (h ^ h>>16) & (1<<stampBits - 1)
}

// raise sets this rank's flag at every rank, after all that was put there before.
func (o *Op) raise(flags Region, number, stamp uint64) error {
	at := o.base + o.layout.Line(flags, o.cfg.Rank)
	if err := o.world.Fence(); err != nil {
		return o.breaks(err)
	}
	for i := range o.cfg.WorldSize {
		// Each rank begins with its right neighbour, so that not all wait for the same one.
		pe := (o.cfg.Rank + 1 + i) % o.cfg.WorldSize
		if err := o.world.SignalSet(at, number<<stampBits|stamp, pe); err != nil {
			return o.breaks(fmt.Errorf("tell rank %d: %w", pe, err))
		}
	}
	return nil
}

// flag is the flag that a rank raised here.
func (o *Op) flag(flags Region, rank int) (number, stamp uint64) {
	v := memory.Load64(o.base + o.layout.Line(flags, rank))
	return v >> stampBits, v & (1<<stampBits - 1)
}

// anyStamp makes await content with any.
const anyStamp = 1 << stampBits

// await waits until the flags of all ranks that awaited tells have come to number, with this stamp.
func (o *Op) await(act string, flags Region, number, stamp uint64, awaited func(rank int) bool) error {
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
		if _, other := o.flag(flags, rank); stamp != anyStamp && other != stamp {
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
