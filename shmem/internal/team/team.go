// SPDX-License-Identifier: MIT

package team

import (
	"fmt"
	"math/bits"
	"sync"

	"mori/shmem/internal/peers"
)

// A Team is a subset of the PEs, renumbered from 0, as seen by one member. PEs that are not members
// have a nil Team (SHMEM_TEAM_INVALID).
//
// Methods that return an error are collective over the members unless they say otherwise: all
// members call them in the same order with the same arguments. If the arguments differ or are
// invalid on one member, all members get an error and no memory changes; the team stays usable.
// After any other error, or a timeout, the team is unusable.
type Team struct {
	reducer
	teams *Teams
	slot  int

	mu sync.Mutex // held by a collective call
}

// MyPE returns this PE's number in the team, -1 for the nil Team. Not collective.
func (t *Team) MyPE() int {
	if t == nil {
		return -1
	}
	return t.me
}

// NPEs returns the number of members, -1 for the nil Team. Not collective.
func (t *Team) NPEs() int {
	if t == nil {
		return -1
	}
	return len(t.members)
}

// WorldPE returns the number in TeamWorld of member pe, -1 if there is no such member. Not
// collective.
func (t *Team) WorldPE(pe int) int {
	if t == nil || pe < 0 || pe >= len(t.members) {
		return -1
	}
	return t.members[pe]
}

// TranslatePE returns the number in another team of member pe, -1 if it is not a member there. Not
// collective.
func (t *Team) TranslatePE(pe int, to *Team) int {
	world := t.WorldPE(pe)
	if world < 0 || to == nil {
		return -1
	}
	for rank, other := range to.members {
		if other == world {
			return rank
		}
	}
	return -1
}

// SplitStrided creates a team of size members of this team: start, start+stride and so on. PEs that
// are not members get nil.
func (t *Team) SplitStrided(start, stride, size int) (*Team, error) {
	if err := t.usable(); err != nil {
		return nil, fmt.Errorf("split %v: %w", t, err)
	}
	n, c := len(t.members), teamCall{kind: teamSplitStrided}
	c.args = [recordLen - 1]uint64{uint64(start), uint64(stride), uint64(size)}
	var bad error
	last := start + (size-1)*stride
	if start < 0 || start >= n || size < 1 || size > n || stride == 0 && size > 1 || abs(stride) >= n && size > 1 || last < 0 || last >= n {
		bad = fmt.Errorf("%d members from %d with stride %d, of %d: %w", size, start, stride, n, peers.ErrInvalid)
	}
	split, err := t.split(&c, bad, func() [][]int {
		row := make([]int, size)
		for i := range row {
			row[i] = start + i*stride
		}
		return [][]int{row}
	})
	if err != nil {
		return nil, fmt.Errorf("split %v: %w", t, err)
	}
	if split[0] != nil {
		split[0].name = fmt.Sprintf("%s/%d:%d:%d", t.name, start, stride, size)
	}
	return split[0], nil
}

// Split2D splits the members into rows of width, the last of which may be shorter, and returns the
// teams of this PE's row and column.
func (t *Team) Split2D(width int) (row, column *Team, err error) {
	if err := t.usable(); err != nil {
		return nil, nil, fmt.Errorf("split %v: %w", t, err)
	}
	c := teamCall{kind: teamSplit2D, args: [recordLen - 1]uint64{uint64(width)}}
	var bad error
	if width < 1 {
		bad = fmt.Errorf("rows of %d: %w", width, peers.ErrInvalid)
	}
	width = min(width, len(t.members))
	split, err := t.split(&c, bad, func() [][]int {
		lines := make([][]int, 2)
		for rank := range t.members {
			if rank/width == t.me/width {
				lines[0] = append(lines[0], rank)
			}
			if rank%width == t.me%width {
				lines[1] = append(lines[1], rank)
			}
		}
		return lines
	})
	if err != nil {
		return nil, nil, fmt.Errorf("split %v: %w", t, err)
	}
	split[0].name = fmt.Sprintf("%s/row %d", t.name, t.me/width)
	split[1].name = fmt.Sprintf("%s/column %d", t.name, t.me%width)
	return split[0], split[1], nil
}

// split creates a team for each of parts, nil if this PE is not in it. The i-th parts of two PEs
// are equal or disjoint, so they can share a slot.
func (t *Team) split(c *teamCall, bad error, parts func() [][]int) ([]*Team, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.teams
	own.mu.Lock()
	defer own.mu.Unlock()
	all, err := t.exchange(c, bad, record{own.free})
	if err != nil {
		return nil, err
	}
	free := ^uint64(0)
	for _, r := range all {
		free &= r[0]
	}
	cut := parts()
	if bits.OnesCount64(free) < len(cut) {
		return nil, fmt.Errorf("a PE is in %d teams, which is the limit: %w", slotsOf(t.env.PEs.N), peers.ErrNoMemory)
	}
	made := make([]*Team, len(cut))
	for i, ranks := range cut {
		slot := bits.TrailingZeros64(free)
		free &^= 1 << slot
		members, mine := make([]int, len(ranks)), false
		for j, rank := range ranks {
			members[j] = t.members[rank]
			mine = mine || rank == t.me
		}
		if mine {
			made[i] = t.teams.newTeam("", slot, members)
		}
	}
	return made, nil
}

// Destroy frees the team. Destroying the nil Team does nothing. TeamWorld and TeamShared cannot be
// destroyed.
func (t *Team) Destroy() error {
	if t == nil {
		return nil
	}
	if err := t.usable(); err != nil {
		return fmt.Errorf("destroy %v: %w", t, err)
	}
	if t == t.teams.world || t == t.teams.shared {
		return fmt.Errorf("destroy %v: this team cannot be destroyed: %w", t, peers.ErrInvalid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.join(&teamCall{kind: teamDestroy}, nil)
	if err == nil {
		err = t.vacate()
	}
	if err != nil {
		return fmt.Errorf("destroy %v: %w", t, err)
	}
	own := t.teams
	own.mu.Lock()
	defer own.mu.Unlock()
	own.free |= 1 << t.slot
	t.broken = fmt.Errorf("%v is destroyed: %w", t, peers.ErrInvalid)
	return nil
}

// usable returns why a collective call cannot start, nil if it can.
func (t *Team) usable() error {
	if t == nil {
		return fmt.Errorf("not a member: %w", peers.ErrInvalid)
	}
	return t.env.PEs.Check()
}

// String returns the team's name and size.
func (t *Team) String() string {
	if t == nil {
		return "no team"
	}
	return t.roster.String()
}

func abs(v int) int { return max(v, -v) }
