// SPDX-License-Identifier: MIT

package team

import (
	"math/bits"

	"mori/shmem/internal/wait"
)

const (
	line = 128 // bytes that CPUs fetch together: a cache line and its neighbour
)

// A team's area in the control block of each of its members. Teams without a common member may have
// the same slot, and so the same offsets.
const (
	arriveAt   = 0                   // of a group's leader: how many of the group have entered, and the sum of their hashes
	releaseAt  = arriveAt + line     // of a group's leader: the epoch that is over
	gatheredAt = releaseAt + line    // of a group's leader: the epoch that all of the group have entered
	enteredAt  = gatheredAt + line   // the epoch that the PE waits in, for reports of missing PEs
	recordAt   = enteredAt + line    // two records, of odd and even epochs
	roundsAt   = recordAt + 2*64     // a line for each round of dissemination, with two words: of odd and even epochs
	recordLen  = 8                   // words
	mostTeams  = 64                  // bits of the mask of free slots
	mostPEs    = 1<<(64-countAt) - 1 // what arriveAt can count
)

// roundsOf is how many rounds of dissemination n participants need.
func roundsOf(n int) int { return bits.Len(uint(n - 1)) }

// areaSize is the size of a team area in a World of n PEs, slotsOf how many there are.
func areaSize(n int) uint64 { return roundsAt + uint64(roundsOf(n))*line }
func slotsOf(n int) int     { return int(min(mostTeams, (wait.ControlSize-wait.TeamsAt)/areaSize(n))) }

// areaAt is where the area of a slot is.
func areaAt(slot, n int) uint64 { return wait.TeamsAt + uint64(slot)*areaSize(n) }
