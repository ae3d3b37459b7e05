// SPDX-License-Identifier: MIT

// Package wait has PEs wait for changes of their memory.
//
//   - Waiter parks this PE and wakes others, by a futex in the control block.
//   - Conditions are the calls of users: WaitUntil, Test and their forms for several elements.
//
// A PE that waits looks a few times, since most waits are short. Then it parks on a word of its own
// control block, which another PE changes when it changes memory. Two changes come without a
// wakeup: raw stores through Ptr, and what a network brings. Therefore nobody parks for longer than
// a slice.
//
// No wakeup is lost. A waiter reads the word, says that it sleeps, looks for the last time, and
// parks if the word is still what it read. The other PE changes memory, and if a waiter sleeps,
// says that none does, changes the word and wakes all. So the wakeups of one sleep cost one system
// call, however many PEs make them.
//
// A PE that waits in a barrier is not woken by puts: waiters for words of the control block and for
// the user's words say so apart.
package wait
