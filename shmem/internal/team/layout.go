// SPDX-License-Identifier: MIT

package team

import (
	"math/bits"

	"mori/shmem/internal/wait"
)

const (
	line = 128 // unit of coherence: a cache line and its neighbour
)

// A team's area in the control block of each of its members. Teams without a common member may use
// the same slot, and so the same offsets.
const (
	arriveAt   = 0                   // of a group's leader: number of entered members, and the sum of their hashes
	releaseAt  = arriveAt + line     // of a group's leader: the latest finished epoch
	gatheredAt = releaseAt + line    // of a group's leader: the epoch that the whole group has entered
	enteredAt  = gatheredAt + line   // the epoch in which the PE waits, for reports of missing PEs
	recordAt   = enteredAt + line    // two records, of odd and even epochs
	roundsAt   = recordAt + 2*64     // a line per round of dissemination, with one word for odd and one for even epochs
	recordLen  = 8                   // words
	mostTeams  = 64                  // bits of the mask of free slots
	mostPEs    = 1<<(64-countAt) - 1 // limit of the count in arriveAt
)

// roundsOf returns the number of rounds of dissemination for n participants.
func roundsOf(n int) int { return bits.Len(uint(n - 1)) }

// areaSize returns the size of a team area in a World of n PEs, slotsOf the number of slots.
func areaSize(n int) uint64 { return roundsAt + uint64(roundsOf(n))*line }
func slotsOf(n int) int     { return int(min(mostTeams, (wait.ControlSize-wait.TeamsAt)/areaSize(n))) }

// areaAt returns the offset of a slot's area.
func areaAt(slot, n int) uint64 { return wait.TeamsAt + uint64(slot)*areaSize(n) }
