// SPDX-License-Identifier: MIT

// Package arrivals remembers what peers have sent to this engine.
//
//   - Table has the transfers that have arrived, by peer. One peer's are a Log.
//   - Tags has the tags that peers sent with their transfers.
//   - A Source is a connection that has notifications of arrivals to book.
//
// Questions do not consume. Memory is bounded, whatever peers send: the oldest is forgotten first,
// and a peer that is registered here is not pushed out by strangers.
package arrivals
