// SPDX-License-Identifier: MIT

// Package transfer tracks submitted batches until they have ended. It does not depend on
// connections: package path implements the interface Path, which carries transfers.
//
//   - A Transfer is one submitted batch, and a Status is its caller's view of it.
//   - A Ledger has the transfers of one path by the Ctx of their ops, and those that the path did
//     not finish.
//   - Pending has the transfers to one peer that have not ended: all of them in an Order, and those
//     that are on no path in a Parking as well.
//   - A Pair holds what the transfers of a session share, and a Reporter what those of an engine
//     share.
package transfer
