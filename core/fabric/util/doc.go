// SPDX-License-Identifier: MIT

// Package util is what providers of core/fabric have in common: queues, tables and the states of an endpoint.
//
//   - [CQ] and [EQ] are complete implementations of fabric.CQ and fabric.EQ with a provider's side to fill them.
//   - [MRTable] holds a domain's registered memory and answers peers' claims on it; [Imports] holds what peers gave us.
//   - [RecvQueue] matches arriving messages with posted receives.
//   - [State] and [Queues] are an endpoint's life: which call is allowed when, and what is bound.
//   - [Parent] counts the children of an object that must not close before them.
//   - [CheckOp] refuses an op that could not mean anything; [Walk] runs along both sides of one.
//
// # How a completion gets its place
//
// A queue never overflows. Before an op is accepted its provider calls [CQ.Reserve]; [fabric.ErrAgain] means that the
// caller has to read completions first, and goes back from Submit as it is. The op then ends by one [CQ.Push], one
// [CQ.PushErr], or, if it succeeded and nobody wants to hear of it, one [CQ.Unreserve]. The place is free again when the
// entry was read.
//
// Completions that a peer causes (remote data at a passive target) have places of their own, as many again, so that a peer cannot
// take those of our own ops: [CQ.TryPush] answers false when they are used up. The provider then stops to take
// more from that peer, and goes on when the function that it gave to [CQ.OnSpace] is called.
//
// A provider whose peer leaves completions in shared memory adds a [Source]: the queue drains it before each look, and
// arms it before a reader parks.
//
// # Ownership
//
// Domains own tables, whoever called Domain.CQ owns that CQ, an endpoint owns its RecvQueue. Nothing here starts a goroutine. All
// types are safe for concurrent use but [Walk], and but Queues.BindCQ and Queues.BindEQ, which belong to the idle endpoint's one owner.
//
// Push, PushErr, TryPush, Reserve, Read, Acquire, Release, Lookup, Post, Take and Next do not allocate, but for errors and for buffers that
// grow to their bound.
package util
