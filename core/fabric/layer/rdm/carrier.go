// SPDX-License-Identifier: MIT

package rdm

import (
	"mori/core/fabric"
	"mori/core/fabric/util/receive"
)

// A Carrier is a connected endpoint (EPMsg) that can serve an EPRDM endpoint, beside others of its
// kind.
type Carrier interface {
	fabric.Endpoint
	fabric.Connector

	// Carry is called once, in state idle. Messages then go into recv through a receive.Feed of the
	// carrier's own, and its OpRecv and OpRemoteWrite completions have source's number. Receives are
	// not submitted here. From Enable on, every other op may be submitted: those that come before the
	// connection wait for it, Limits.TxSize of them. When the carrier ends, recv lives on.
	Carry(recv *receive.Queue, source func() fabric.AVAddr)

	// Abort ends a carrier that did not connect: ops that wait end with cause. It may still be closed.
	Abort(cause error)
}
