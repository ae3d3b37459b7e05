// SPDX-License-Identifier: MIT

// Package team has the teams of PEs and their collective calls.
//
//   - Teams makes the teams of a PE and gives each a slot in the control block (layout.go).
//   - roster says who the members are, and which of them share a host.
//   - barrier has the members wait for each other, and compares what they call.
//   - copier moves data between members, reducer combines it.
//   - Team has the calls of users on top of these.
//
// # Barriers
//
// Each call of a team is an epoch, and a member leaves it when all have entered it.
//
// Dissemination: in round r each member notifies the one that is 2^r behind it, after log2(n)
// rounds everybody has heard of everybody. Words of odd and even epochs have different cells. That
// is enough: a member that notifies of epoch e+2 has left e+1, so everybody has entered e+1, and so
// has read all cells of e.
//
// Central: each member adds to a word of its group's leader, and the last of them notifies all that
// wait. It costs more on an idle machine, but each member runs only once, where in dissemination it
// runs up to log2(n) times: on 2 cores, 8 PEs need a third of the time. The groups of several hosts
// enter centrally, their leaders disseminate, and the leaders release them.
//
// With the epoch travels a hash of what the member calls. In dissemination a word has the hash and
// whether any other hash was heard of: whoever has heard of nobody different and gets a word equal
// to its own knows of twice as many. Centrally the hashes are added up. So after the epoch either
// all members know that all calls were the same, or all know that they were not.
//
// A word of dissemination, releaseAt and gatheredAt: the epoch in the high half; 31 bits of hash;
// whether calls differ in bit 0. The word of arriveAt: how many have entered, in the bits above
// countAt, and the sum of their hashes.
package team
