// SPDX-License-Identifier: MIT

package pybind

import (
	"mori/pybind/handle"
	"mori/shmem"
)

// Handles of the predefined teams. All others come from teams.
const (
	teamWorld  = 1
	teamShared = 2
)

var teams = handle.Table[*shmem.Team]{What: "team"}

func team(id uint64) (*shmem.Team, error) {
	p, err := current()
	if err != nil {
		return nil, err
	}
	switch id {
	case teamWorld:
		return p.TeamWorld(), nil
	case teamShared:
		return p.TeamShared(), nil
	}
	return teams.Get(id)
}

// ShmemTeamMyPE returns the number of this process's PE in a team.
func ShmemTeamMyPE(id uint64) (n int, err error) {
	defer guard(&err)
	t, err := team(id)
	if err != nil {
		return 0, err
	}
	return t.MyPE(), nil
}

// ShmemTeamNPEs returns the number of members of a team.
func ShmemTeamNPEs(id uint64) (n int, err error) {
	defer guard(&err)
	t, err := team(id)
	if err != nil {
		return 0, err
	}
	return t.NPEs(), nil
}

// ShmemTeamTranslatePE translates a member's number to its number in another team, -1 if it is not
// in that team.
func ShmemTeamTranslatePE(id uint64, member int, other uint64) (n int, err error) {
	defer guard(&err)
	from, err := team(id)
	if err != nil {
		return 0, err
	}
	to, err := team(other)
	if err != nil {
		return 0, err
	}
	return from.TranslatePE(member, to), nil
}

// ShmemTeamSplitStrided starts to create a team from members of another. JobResult: its handle, 0
// on PEs that are not in it.
func ShmemTeamSplitStrided(id uint64, start int, stride int, size int) (job uint64, err error) {
	defer guard(&err)
	parent, err := team(id)
	if err != nil {
		return 0, err
	}
	return collective(func(*pe) (uint64, error) {
		t, err := parent.SplitStrided(start, stride, size)
		return handleOf(t), err
	})
}

// ShmemTeamSplit2D starts to create teams from the rows and columns of a team laid out in rows of
// xrange. JobResult: a handle for ShmemTeamAxis.
func ShmemTeamSplit2D(id uint64, xrange int) (job uint64, err error) {
	defer guard(&err)
	parent, err := team(id)
	if err != nil {
		return 0, err
	}
	return collective(func(*pe) (uint64, error) {
		x, y, err := parent.Split2D(xrange)
		if err != nil {
			return 0, err
		}
		return grids.Add([2]uint64{handleOf(x), handleOf(y)}), nil
	})
}

// grids holds pairs of teams that Python has not fetched yet.
var grids = handle.Table[[2]uint64]{What: "pair of teams"}

// ShmemTeamAxis returns the handle of the row's team for axis 0, and of the column's for axis 1.
// Axis 1 removes the pair.
func ShmemTeamAxis(pair uint64, axis int) (id uint64, err error) {
	defer guard(&err)
	both, err := grids.Get(pair)
	if err != nil {
		return 0, err
	}
	if axis != 0 {
		grids.Remove(pair)
		return both[1], nil
	}
	return both[0], nil
}

func handleOf(t *shmem.Team) uint64 {
	if t == nil {
		return 0
	}
	return teams.Add(t)
}

// ShmemTeamDestroy starts to destroy a team. JobResult: 0.
func ShmemTeamDestroy(id uint64) (job uint64, err error) {
	defer guard(&err)
	t, err := team(id)
	if err != nil {
		return 0, err
	}
	return collective(func(*pe) (uint64, error) {
		err := t.Destroy()
		if err == nil {
			teams.Remove(id)
		}
		return 0, err
	})
}
