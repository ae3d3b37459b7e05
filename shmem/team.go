// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync"

	"mori/core/topology"
	"mori/shmem/internal/peers"
)

// A Team is a subset of the PEs, numbered anew from 0, as one of its members sees it. PEs that are no members have a nil Team
// (SHMEM_TEAM_INVALID).
//
// The methods with an error are collective over the members unless they say otherwise: all make them in the same order, with the same
// arguments. If the arguments differ, or one member's are not valid, all members get an error and no memory is touched; the
// team can be used further. After any other error of such a call, or a time-out, it can not.
type Team struct {
	w       *World
	name    string
	slot    int
	area    uint64  // where the team's area is in control blocks
	members []int   // the PEs, by their number in the team
	me      int     // this PE's number in the team
	groups  [][]int // numbers of the members whose memory is mapped by each other
	group   int     // this PE's, in groups
	groupOf []int   // by number in the team
	central bool    // how it meets (barrier.go)
	all     []hop   // dissemination over all members
	leaders []hop   // dissemination over the groups' leaders, if this PE is one and there are several

	mu      sync.Mutex
	epoch   uint32   // of the latest sync
	broken  error    // why it cannot be used any more
	room    []byte   // scratch memory of reductions
	sources []uint64 // of a reduction: where they are
	asked   []byte   // where words of entered arrive
}

// teams is what a World knows of teams.
type teams struct {
	leader []int  // by PE: the lowest of the PEs that map each other's memory, which means on its host
	crowd  []bool // by PE: its host has more PEs than cores
	cores  int    // that the PEs of this host have together
	world  *Team
	shared *Team

	mu   sync.Mutex // from the look for a free slot until it is taken
	free uint64     // the slots, as bits
}

// A view is what a PE tells of itself before there are teams.
type view struct {
	PID    int
	CPUs   []int // that the process may run on
	Procs  int   // of them that it uses at once
	Mapped []int
}

// self is the view of this process, which has not mapped anything.
func self() view {
	v := view{PID: os.Getpid(), Procs: runtime.GOMAXPROCS(0)}
	var err error
	if v.CPUs, err = topology.CPUs(); err != nil { // as if each process had its own
		v.CPUs = make([]int, runtime.NumCPU())
		for i := range v.CPUs {
			v.CPUs[i] = i
		}
	}
	return v
}

// openTeams makes the teams that are always there. Collective.
func (w *World) openTeams(ctx context.Context) error {
	slots := slotsOf(w.pes.N)
	if slots < 2 || w.pes.N > mostPEs {
		return fmt.Errorf("make teams of %d PEs: the control block is too small", w.pes.N)
	}
	mine := self()
	for pe := range w.pes.N {
		if w.control.At(pe) != 0 {
			mine.Mapped = append(mine.Mapped, pe)
		}
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := w.pes.Gather(ctx, text)
	if err != nil {
		return fmt.Errorf("make teams: %w", err)
	}
	views := make([]view, w.pes.N)
	for pe, blob := range blobs {
		if err := peers.Decode(blob, pe, "memory map", &views[pe]); err != nil {
			return err
		}
	}
	w.teams.leader, w.teams.crowd = hosts(views)
	w.waiter.Crowded = w.teams.crowd[w.pes.Me]
	w.teams.cores = cores(views, mine.Mapped)
	w.teams.free = 1<<slots - 1 // all, if there are 64
	everyone, near := make([]int, w.pes.N), []int{}
	for pe := range everyone {
		everyone[pe] = pe
		if w.teams.leader[pe] == w.teams.leader[w.pes.Me] {
			near = append(near, pe)
		}
	}
	w.teams.world = w.newTeam("world", 0, everyone)
	w.teams.shared = w.newTeam("shared", 1, near)
	return nil
}

// hosts finds which PEs map each other's memory: PEs are on one host if they map the same PEs, themselves among them. All PEs come
// to the same result, as the views are the same.
func hosts(views []view) (leader []int, crowd []bool) {
	leader, crowd = make([]int, len(views)), make([]bool, len(views))
	first := map[string]int{}
	for pe, v := range views {
		key := fmt.Sprint(v.Mapped)
		if _, known := first[key]; !known {
			first[key] = pe
		}
		leader[pe] = first[key]
		crowd[pe] = len(v.Mapped) > cores(views, v.Mapped)
	}
	return leader, crowd
}

// cores is how many of these PEs can run at once: launchers often bind each to processors of its own, and a process may hold several.
func cores(views []view, pes []int) int {
	cpus, procs := map[int]bool{}, map[int]int{}
	for _, pe := range pes {
		for _, cpu := range views[pe].CPUs {
			cpus[cpu] = true
		}
		procs[views[pe].PID] = views[pe].Procs
	}
	most := 0
	for _, n := range procs {
		most += n
	}
	return min(len(cpus), most)
}

// Cores is how many processors the PEs of this host, those of TeamShared, have together. A launcher may have bound each to some.
func (w *World) Cores() int { return w.teams.cores }

// newTeam makes this PE's part of a team that it is a member of, and takes the slot.
func (w *World) newTeam(name string, slot int, members []int) *Team {
	w.teams.free &^= 1 << slot
	t := &Team{w: w, name: name, slot: slot, area: areaAt(slot, w.pes.N), members: members}
	at := map[int]int{} // groups by leader PE
	crowd := false
	for rank, pe := range members {
		host := w.teams.leader[pe]
		if _, known := at[host]; !known {
			at[host] = len(t.groups)
			t.groups = append(t.groups, nil)
		}
		t.groups[at[host]] = append(t.groups[at[host]], rank)
		t.groupOf = append(t.groupOf, at[host])
		crowd = crowd || w.teams.crowd[pe]
		if pe == w.pes.Me {
			t.me, t.group = rank, at[host]
		}
	}
	several := len(t.groups) > 1
	t.central = several && len(t.groups) < len(members) || !several && crowd && len(members) > 2
	t.all = t.hops(members, t.me)
	if several && t.leads() {
		heads := make([]int, len(t.groups))
		for i, group := range t.groups {
			heads[i] = members[group[0]]
		}
		t.leaders = t.hops(heads, t.group)
	}
	return t
}

// leads reports whether this PE is the leader of its group.
func (t *Team) leads() bool { return t.groups[t.group][0] == t.me }

// TeamWorld is the team of all PEs.
func (w *World) TeamWorld() *Team { return w.teams.world }

// TeamShared is the team of the PEs whose memory is mapped here: Ptr works between them.
func (w *World) TeamShared() *Team { return w.teams.shared }

// MyPE is this PE's number in the team, NPEs how many it has; -1 of the nil Team. Not collective.
func (t *Team) MyPE() int {
	if t == nil {
		return -1
	}
	return t.me
}

// NPEs is how many members the team has, -1 of the nil Team. Not collective.
func (t *Team) NPEs() int {
	if t == nil {
		return -1
	}
	return len(t.members)
}

// WorldPE is the number in TeamWorld of member pe, -1 if there is none. Not collective.
func (t *Team) WorldPE(pe int) int {
	if t == nil || pe < 0 || pe >= len(t.members) {
		return -1
	}
	return t.members[pe]
}

// TranslatePE is the number in another team of member pe, -1 if it is no member there. Not collective.
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

// SplitStrided makes a team of size members of this one: start, start+stride and so on. Others get nil.
func (t *Team) SplitStrided(start, stride, size int) (*Team, error) {
	if err := t.usable(); err != nil {
		return nil, fmt.Errorf("split %v: %w", t, err)
	}
	n, c := len(t.members), teamCall{kind: teamSplitStrided}
	c.args = [recordLen - 1]uint64{uint64(start), uint64(stride), uint64(size)}
	var bad error
	last := start + (size-1)*stride
	if start < 0 || start >= n || size < 1 || size > n || stride == 0 && size > 1 || abs(stride) >= n && size > 1 || last < 0 || last >= n {
		bad = fmt.Errorf("%d members from %d with stride %d, of %d: %w", size, start, stride, n, ErrInvalid)
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

// Split2D cuts the members into rows of width, the last of which may be shorter, and returns the teams of this PE's row and column.
func (t *Team) Split2D(width int) (row, column *Team, err error) {
	if err := t.usable(); err != nil {
		return nil, nil, fmt.Errorf("split %v: %w", t, err)
	}
	c := teamCall{kind: teamSplit2D, args: [recordLen - 1]uint64{uint64(width)}}
	var bad error
	if width < 1 {
		bad = fmt.Errorf("rows of %d: %w", width, ErrInvalid)
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

// split makes teams of the members in each of parts, nil where this PE is none. The i-th parts of two PEs are the same or have
// no member in common, so that they can have one slot.
func (t *Team) split(c *teamCall, bad error, parts func() [][]int) ([]*Team, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := &t.w.teams
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
		return nil, fmt.Errorf("a PE is in %d teams, and there can be no more: %w", slotsOf(t.w.pes.N), ErrNoMemory)
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
			made[i] = t.w.newTeam("", slot, members)
		}
	}
	return made, nil
}

// Destroy frees the team. The nil Team may be destroyed, those that are always there must not.
func (t *Team) Destroy() error {
	if t == nil {
		return nil
	}
	if err := t.usable(); err != nil {
		return fmt.Errorf("destroy %v: %w", t, err)
	}
	if t == t.w.teams.world || t == t.w.teams.shared {
		return fmt.Errorf("destroy %v: it is always there: %w", t, ErrInvalid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.meet(&teamCall{kind: teamDestroy}, nil)
	if err == nil {
		err = t.vacate()
	}
	if err != nil {
		return fmt.Errorf("destroy %v: %w", t, err)
	}
	own := &t.w.teams
	own.mu.Lock()
	defer own.mu.Unlock()
	own.free |= 1 << t.slot
	t.broken = fmt.Errorf("%v is destroyed: %w", t, ErrInvalid)
	return nil
}

// usable reports why a collective call cannot begin, nil if it can.
func (t *Team) usable() error {
	if t == nil {
		return fmt.Errorf("not a member: %w", ErrInvalid)
	}
	return t.w.pes.Check()
}

// spoil makes the team unusable, as its members no longer agree where they are.
func (t *Team) spoil(err error) error {
	if t.broken == nil {
		t.broken = fmt.Errorf("the team cannot be used any more: %w", err)
	}
	return err
}

// String is the team's name and size.
func (t *Team) String() string {
	if t == nil {
		return "no team"
	}
	return fmt.Sprintf("team %s of %d PEs", t.name, len(t.members))
}

func abs(v int) int { return max(v, -v) }
