// SPDX-License-Identifier: MIT

// Package batch makes ops of the entries of a transfer.
//
//   - Entries are offsets and sizes as the caller of a session gives them.
//   - Target is what all transfers of a session over one path have in common.
//   - Batch checks entries against both regions and turns them into ops. It merges entries that are
//     contiguous on both sides, and cuts them where the transport wants. Batch.Rebase fits what is
//     not done for another path.
//
// The package does no I/O. Batches are reused: a transfer allocates nothing here once the slices
// have grown.
package batch
