// SPDX-License-Identifier: MIT

// Package arrivals remembers what peers have sent to this engine.
//
//   - Table has the transfers that have arrived, by peer. A Log has those of one peer.
//   - Tags has the tags that peers sent with their transfers.
//   - A Source is a connection with notifications of arrivals that are not yet recorded.
//
// Queries do not consume. Memory is bounded, whatever peers send: the oldest entries are evicted
// first, and unregistered peers cannot evict a registered one.
package arrivals
