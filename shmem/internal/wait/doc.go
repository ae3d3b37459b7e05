// SPDX-License-Identifier: MIT

// Package wait lets PEs wait for changes of their memory.
//
//   - Waiter parks this PE and wakes others, through a futex in the control block.
//   - Conditions has the public calls: WaitUntil, Test and their forms for several elements.
//
// A waiting PE first polls, because most waits are short. Then it parks on a word of its own
// control block, which another PE changes after it has changed memory. Two kinds of change come
// without a wakeup: plain stores through Ptr, and writes over a network. So a PE never parks longer
// than a slice.
//
// No wakeup is lost. A waiter reads the word, marks itself as sleeping, checks memory once more,
// and parks if the word is unchanged. The other PE changes memory. If it sees a sleeper, it clears
// the mark, changes the word and wakes all sleepers. So all wakeups of one sleep cost one system
// call.
//
// Puts do not wake a PE that waits in a barrier: waiters for the control block and for user memory
// have separate marks.
package wait
