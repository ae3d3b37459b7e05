// SPDX-License-Identifier: MIT

// Package util is what providers of core/fabric have in common.
//
//   - [CQ], [EQ], [Counter] and [AV] are complete implementations of their namesakes in fabric,
//     with a provider's side to fill them.
//   - A provider's objects embed [FabricBase], [DomainBase] and [EndpointBase] or [MsgBase], which
//     have the calls that are the same everywhere.
//   - [State] and [Queues] are an endpoint's life: which call is allowed when, what is bound, and
//     what is reported when an op ends.
//   - [Parent] counts the children of an object that must not close before them.
//   - [CheckOpLen] refuses an op that could not mean anything. [Walk] runs along both sides of one.
//
// Package regions has a domain's memory and what peers gave us of theirs, package receive matches
// messages with receives, and package atomics executes atomic ops.
//
// # How a completion gets its place
//
// A queue never overflows. Before a provider accepts an op, it calls [CQ.Reserve].
// [fabric.ErrAgain] means that the caller has to read completions first; Submit returns it as it
// is. The op then ends by one [CQ.Push] or one [CQ.PushErr], or by one [CQ.Unreserve] if it
// succeeded and reports no success. The place is free again when the entry was read.
//
// Completions that a peer causes (remote data at a passive target) have places of their own, as
// many again, so that a peer cannot take those of our own ops: [CQ.TryPush] answers false when they
// are used up. The provider then stops to take more from that peer, and continues when the function
// that it gave to [CQ.OnSpace] is called.
//
// A provider whose peer leaves completions in shared memory adds a [Source]: the queue drains it
// before each look, and arms it before a reader parks or TryWait says that the descriptor may be
// waited on.
//
// # How a caller waits
//
// CQ.Wait, EQ.Wait and Counter.Wait park a goroutine. A program with an event loop of its own waits
// on the descriptor of the wait object instead. Neither costs those who do not use it more than a
// branch. The first FD or TryWait makes the descriptor. Only the first arrival after a TryWait that
// answered nil writes to it.
//
// # Ownership
//
// The caller of Domain.CQ owns that CQ. Nothing here starts a goroutine. All types are safe for
// concurrent use but [Walk], and but BindCQ, BindEQ and BindCounter of [Queues]: EndpointBase
// serializes those.
//
// Push, PushErr, TryPush, TryWait, Count, Reserve, Read, Lookup, Find, CheckOpLen and Next do not
// allocate, but for errors and for buffers that grow to their bound.
package util
