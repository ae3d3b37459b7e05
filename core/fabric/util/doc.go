// SPDX-License-Identifier: MIT

// Package util has the parts that providers of core/fabric share.
//
//   - [CQ], [EQ], [Counter] and [AV] are complete implementations of the types of the same name in
//     fabric, with methods for providers to fill them.
//   - A provider's objects embed [FabricBase], [DomainBase] and [EndpointBase] or [MsgBase], which
//     implement the methods that are the same for all providers.
//   - [State] and [Queues] are an endpoint's life cycle: which call is allowed when, which queues
//     are bound, and what is reported when an op ends.
//   - [Parent] counts the children of an object, which must close before it.
//   - [CheckOpLen] rejects invalid ops. [Walk] iterates over both sides of an op.
//
// Package regions holds a domain's registered memory and imported regions of peers. Package receive
// matches messages with receives. Package atomics executes atomic ops.
//
// # Places in a completion queue
//
// A queue never overflows. Before a provider accepts an op, it calls [CQ.Reserve].
// [fabric.ErrAgain] means that the caller has to read completions first; Submit returns this error
// unchanged. The op then ends with one [CQ.Push] or one [CQ.PushErr], or with one [CQ.Unreserve] if
// it succeeded and reports no success. Reading the entry frees its place.
//
// Completions that a peer causes (remote data at a passive target) have as many places of their
// own, so a peer cannot use up the places of our ops. [CQ.TryPush] returns false when these places
// are full. The provider then stops receiving from that peer until the queue calls the function set
// with [CQ.OnSpace].
//
// A provider whose peer writes completions to shared memory adds a [Source]. The queue drains it
// before each read. It arms it before a reader parks or TryWait reports that the program may wait
// on the descriptor.
//
// # Waiting
//
// CQ.Wait, EQ.Wait and Counter.Wait park a goroutine. A program with its own event loop waits on
// the descriptor of the wait object instead. A program that uses neither pays only for a branch.
// The first FD or TryWait creates the descriptor. After a TryWait that returned nil, only the first
// arrival writes to it.
//
// # Ownership
//
// The caller of Domain.CQ owns that CQ. Nothing here starts a goroutine. All types are safe for
// concurrent use, except [Walk] and the methods BindCQ, BindEQ and BindCounter of [Queues], which
// EndpointBase serializes.
//
// Push, PushErr, TryPush, TryWait, Count, Reserve, Read, Lookup, Find, CheckOpLen and Next do not
// allocate, except for errors and for buffers that grow to their bound.
package util
