// SPDX-License-Identifier: MIT

// Package team has the teams of PEs and their collective calls.
//
//   - Teams creates the teams of a PE and assigns each a slot in the control block (layout.go).
//   - roster lists the members, and which of them share a host.
//   - barrier synchronises the members, and compares their calls.
//   - copier moves data between members, reducer combines it.
//   - Team has the public calls on top of these.
//
// # Barriers
//
// Each call of a team is an epoch, and a member leaves it when all have entered it.
//
// Dissemination: in round r each member notifies the member 2^r after it. After log2(n) rounds
// every member has heard from all. Words of odd and even epochs have separate cells. Two suffice: a
// member that notifies of epoch e+2 has left e+1, so all members have entered e+1, and have read
// all cells of e.
//
// Central: each member adds to a word of its group's leader, and the last one notifies all waiters.
// It costs more on an idle machine, but each member runs only once, while dissemination runs it up
// to log2(n) times: on 2 cores, 8 PEs need a third of the time. With several hosts, groups enter
// centrally, their leaders disseminate, and then release the groups.
//
// Each epoch carries a hash of the member's call. In dissemination a word has the hash and a bit
// for any difference seen. A member that has seen no difference and receives its own hash knows
// that twice as many members agree. In the central algorithm the hashes are summed. After the
// epoch, either all members know that all calls were equal, or all know that they were not.
//
// A word of dissemination, releaseAt and gatheredAt has the epoch in the high half, 31 bits of
// hash, and in bit 0 whether calls differ. The word of arriveAt has the number of entered members
// in the bits from countAt, and the sum of their hashes below.
package team
