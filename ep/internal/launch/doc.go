// SPDX-License-Identifier: MIT

// Package launch chooses how many blocks and warps the kernels of dispatch and combine get. It is
// arithmetic, but for ReadTuning, which reads a file.
//
//   - Shape is a number of blocks, and of warps in each.
//   - Chooser takes what the call asks for, then a rule of a tuning table, then what the
//     configuration asks for, then what the cost model suggests.
//   - suggest is the cost model: the paces that were measured between two GPUs (cost.go).
//   - Tuning has the tables that `mori tune ep` writes.
package launch
