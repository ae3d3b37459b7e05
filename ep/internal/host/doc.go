// SPDX-License-Identifier: MIT

// Package host dispatches and combines on host memory, with the threads of the caller's process.
//
//   - Side has the calls of an op. It divides them among the types below.
//   - dispatcher plans, publishes the counts and copies rows to where they belong (dispatch.go).
//   - combiner sums the rows of each token (combine.go); puller finds or fetches these (pull.go).
//   - packer groups received rows by expert, and undoes it (pack.go).
//   - buffers is the symmetric memory of the op.
//   - flags are the words by which ranks wait for each other.
//   - workers divides rows among threads.
//   - staging is memory that NICs know, for ranks that are not mapped.
//   - pending is a call between its send and its recv.
package host
