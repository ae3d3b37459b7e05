// SPDX-License-Identifier: MIT

// Package transfer has submitted batches from their submission to their terminal state. It knows
// no connection: package path carries transfers, and a Path is what they know of it.
//
//   - A Transfer is one batch on its way, and a Status is what its caller sees of it.
//   - A Ledger has the transfers of one path by the Ctx of their ops, and those that it left
//     undone.
//   - Pending has the transfers to one peer that have not ended: all of them in an Order, and those
//     that are on no path in a Parking as well.
//   - A Pair is what the transfers of a session have in common, and a Reporter what those of an
//     engine have.
package transfer
