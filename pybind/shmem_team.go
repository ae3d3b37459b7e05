// SPDX-License-Identifier: MIT

package pybind

import (
	"mori/pybind/handle"
	"mori/shmem"
)

// Handles of the teams that are always there. Others come from teams.
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

// ShmemTeamMyPE returns this process's number in a team.
func ShmemTeamMyPE(id uint64) (n int, err error) {
	defer guard(&err)
	t, err := team(id)
	if err != nil {
		return 0, err
	}
	return t.MyPE(), nil
}

// ShmemTeamNPEs returns the number of a team's members.
func ShmemTeamNPEs(id uint64) (n int, err error) {
	defer guard(&err)
	t, err := team(id)
	if err != nil {
		return 0, err
	}
	return t.NPEs(), nil
}

// ShmemTeamTranslatePE returns the number in another team of a team's member, -1 if that has none.
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

// ShmemTeamSplitStrided starts to make a team of members of another. JobResult: its handle, 0 for
// who is not in it.
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

// ShmemTeamSplit2D starts to make teams of the rows and columns of a team laid out in rows of
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

// grids are pairs of teams on their way to Python.
var grids = handle.Table[[2]uint64]{What: "pair of teams"}

// ShmemTeamAxis returns the handle of the row's team (0), then of the column's (1), after which the
// pair is forgotten.
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

// ShmemTeamDestroy starts to end a team. JobResult: 0.
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
