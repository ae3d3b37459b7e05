// SPDX-License-Identifier: MIT

// Package call has what callers name in a call of an op, and the checks that need no other rank.
//
//   - Batch is what a rank dispatches, Output what it combines.
//   - Route is an earlier dispatch, for both to repeat.
//   - RowFormat is how rows of a combine travel: as they are, or quantised.
//   - Packed is the standard-MoE form of received rows.
//   - State says whether an op can take a call.
//
// Both sides of an op, on host memory and on a GPU, take these calls.
package call
