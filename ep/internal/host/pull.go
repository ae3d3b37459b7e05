// SPDX-License-Identifier: MIT

package host

import (
	"fmt"

	"mori/core/memory"
	"mori/ep/internal/plan"
)

// A puller finds the rows of other ranks: in their memory where that is mapped, else it fetches
// their blocks into staging.
type puller struct {
	*buffers
	staging *staging
}

// pull returns, for each column and rank, the address in this process from which the slots of the
// rank's rows count.
func (u *puller) pull(p *plan.Plan, columns []*column) (at [][]uint64, err error) {
	at = make([][]uint64, len(columns))
	stage, err := u.staging.get(u.farBytes(p, columns))
	if err != nil {
		return nil, err
	}
	for i, c := range columns {
		at[i] = make([]uint64, u.cfg.WorldSize)
		for pe, count := range p.Counts() {
			size := uint64(count) * c.bytes
			if mapped := u.world.Ptr(u.base, pe); mapped != 0 || size == 0 {
				at[i][pe] = mapped + c.region.Offset
				continue
			}
			base := uint64(p.Base(pe)) * c.bytes
			if err := u.world.GetNbi(memory.AddrOf(stage), u.at(c.region)+base, size, pe); err != nil {
				return nil, fmt.Errorf("combine from rank %d: %w", pe, err)
			}
			at[i][pe] = memory.AddrOf(stage) - base
			stage = stage[size:]
		}
	}
	return at, u.world.Quiet()
}

// farBytes returns the bytes of the blocks of ranks whose memory is not mapped here.
func (u *puller) farBytes(p *plan.Plan, columns []*column) (far uint64) {
	for pe, count := range p.Counts() {
		if u.world.Ptr(u.base, pe) != 0 {
			continue
		}
		for _, c := range columns {
			far += uint64(count) * c.bytes
		}
	}
	return far
}
