// SPDX-License-Identifier: MIT

// Package batch splits the entries of a transfer into ops.
//
//   - Entries are offsets and sizes as the caller of a session passes them.
//   - Target holds what all transfers of a session over one path have in common.
//   - Batch checks entries against both regions and turns them into ops. It merges entries that are
//     contiguous on both sides, and splits them at the transport's limits. Batch.Rebase adapts the
//     ops that are not done to another path.
//
// The package does no I/O. Batches are reused: a transfer allocates nothing here once the slices
// have grown.
package batch
