// SPDX-License-Identifier: MIT

// Package endtest has the common parts of tests of providers with connected endpoints. It opens an
// endpoint with its objects, connects two endpoints, waits for ops, and runs a peer in another
// process.
//
//	var all endtest.Stack
//	o, err := endtest.Open(ctx, fab, nil, 1024, &all) // close by all.Close(), also after an error
//	err = endtest.Connect(ctx, o.EP, otherFabric, other.EP)
//	err = endtest.Do(ctx, o.EP, o.CQ, fabric.Op{Kind: fabric.OpWrite, ...})
//
// A [Child] is the test program itself, started again with an environment variable set. Its
// TestMain then calls [Serve], which answers [Child.Ask].
//
// Calls end with ctx. They wait by sleeping in the completion queue, as programs do.
package endtest
