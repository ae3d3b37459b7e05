// SPDX-License-Identifier: MIT

package team

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"

	"mori/core/topology"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
	"mori/shmem/internal/wait"
)

// An Env is what teams need from their World.
type Env struct {
	PEs     *peers.Group
	Control *heap.Block
	Waiter  *wait.Waiter
	Net     *remote.Network // to PEs whose memory is not mapped; nil if there is none
	OnGPU   bool            // the heap is on GPUs
	Split   bool            // some PEs have GPUs that cannot access each other

	Drain  func() error                                                // waits for this PE's queued operations
	Locate func(addr, n uint64) (b *heap.Block, off uint64, err error) // finds symmetric memory
}

// Teams holds all teams of this PE.
type Teams struct {
	env    *Env
	leader []int  // by PE: the lowest PE of its host (the PEs that map each other's memory)
	crowd  []bool // by PE: its host has more PEs than cores
	cores  int    // cores that the PEs of this host share
	world  *Team
	shared *Team

	mu   sync.Mutex // held from the search for a free slot until it is taken
	free uint64     // free slots, as bits
}

// A view is what a PE sends to the others before teams exist.
type view struct {
	PID    int
	CPUs   []int // processors that the process may use
	Procs  int   // number of them that it uses at once
	Mapped []int
}

// self returns the view of this process, with nothing mapped.
func self() view {
	v := view{PID: os.Getpid(), Procs: runtime.GOMAXPROCS(0)}
	var err error
	if v.CPUs, err = topology.CPUs(); err != nil { // as if each process had its own cores
		v.CPUs = make([]int, runtime.NumCPU())
		for i := range v.CPUs {
			v.CPUs[i] = i
		}
	}
	return v
}

// Open creates TeamWorld and TeamShared. Collective.
func Open(ctx context.Context, env Env) (*Teams, error) {
	pes := env.PEs
	slots := slotsOf(pes.N)
	if slots < 2 || pes.N > mostPEs {
		return nil, fmt.Errorf("make teams of %d PEs: the control block is too small", pes.N)
	}
	mine := self()
	for pe := range pes.N {
		if env.Control.At(pe) != 0 {
			mine.Mapped = append(mine.Mapped, pe)
		}
	}
	text, _ := json.Marshal(mine) // plain fields
	blobs, err := pes.Gather(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("make teams: %w", err)
	}
	views := make([]view, pes.N)
	for pe, blob := range blobs {
		if err := peers.Decode(blob, pe, "memory map", &views[pe]); err != nil {
			return nil, err
		}
	}
	s := &Teams{env: &env, cores: cores(views, mine.Mapped), free: 1<<slots - 1} // all, if there are 64
	leader, crowd := hosts(views)
	Regroup(s, leader, crowd)
	var near []int
	for pe := range pes.N {
		if leader[pe] == leader[pes.Me] {
			near = append(near, pe)
		}
	}
	s.shared = s.newTeam("shared", 1, near)
	return s, nil
}

// Regroup recreates TeamWorld as if the PEs with the same leader were on one host; crowd says which
// hosts have more PEs than cores. Tests use it to have several hosts in one process.
func Regroup(s *Teams, leader []int, crowd []bool) {
	s.leader, s.crowd = leader, crowd
	s.env.Waiter.Crowded = crowd[s.env.PEs.Me]
	all := make([]int, s.env.PEs.N)
	for pe := range all {
		all[pe] = pe
	}
	s.world = s.newTeam("world", 0, all)
}

// hosts determines the host of each PE: PEs are on one host if they map the same PEs, including
// themselves. All PEs get the same result, because the views are the same.
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

// cores returns how many of these PEs can run at once. Launchers often bind each process to
// processors of its own, and a process may hold several PEs.
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

// Cores returns the number of processors that the PEs of this host (TeamShared) share. A launcher
// may have bound processes to some of them.
func (s *Teams) Cores() int { return s.cores }

// newTeam creates this PE's part of a team, and takes the slot.
func (s *Teams) newTeam(name string, slot int, members []int) *Team {
	s.free &^= 1 << slot
	r := &roster{name: name, members: members}
	b := &barrier{roster: r, env: s.env, area: areaAt(slot, s.env.PEs.N)}
	t := &Team{reducer: reducer{copier: copier{b}}, teams: s, slot: slot}
	at := map[int]int{} // groups by leader PE
	crowd := false
	for rank, pe := range members {
		host := s.leader[pe]
		if _, known := at[host]; !known {
			at[host] = len(t.groups)
			t.groups = append(t.groups, nil)
		}
		t.groups[at[host]] = append(t.groups[at[host]], rank)
		t.groupOf = append(t.groupOf, at[host])
		crowd = crowd || s.crowd[pe]
		if pe == s.env.PEs.Me {
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

// TeamWorld is the team of all PEs.
func (s *Teams) TeamWorld() *Team { return s.world }

// TeamShared is the team of the PEs whose memory is mapped here: Ptr works between them.
func (s *Teams) TeamShared() *Team { return s.shared }

// BarrierAll returns when all PEs have called it, and all their puts are complete
// (shmem_barrier_all).
func (s *Teams) BarrierAll() error { return s.world.Barrier() }

// SyncAll returns when all PEs have called it (shmem_sync_all). Operations on PEs whose memory is
// not mapped may still be pending.
func (s *Teams) SyncAll() error { return s.world.Sync() }
