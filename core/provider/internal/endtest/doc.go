// SPDX-License-Identifier: MIT

// Package endtest is what the tests of providers with connected endpoints begin with: an endpoint
// and the objects that it needs, two that are connected, ops whose ends are waited for, and a peer
// that is a process of its own.
//
//	var all endtest.Stack
//	o, err := endtest.Open(ctx, fab, nil, 1024, &all) // close by all.Close(), also after an error
//	err = endtest.Connect(ctx, o.EP, otherFabric, other.EP)
//	err = endtest.Do(ctx, o.EP, o.CQ, fabric.Op{Kind: fabric.OpWrite, ...})
//
// A [Child] is the test program itself, started again with a variable set. Its TestMain calls
// [Serve] then, which answers what [Child.Ask] asks.
//
// Calls end with ctx. They wait by sleeping in the completion queue, as programs do.
package endtest
