// SPDX-License-Identifier: MIT

package rdm

import (
	"mori/core/fabric"
	"mori/core/fabric/util/receive"
)

// A Carrier is a connected endpoint (EPMsg) that can serve an EPRDM endpoint together with other
// carriers.
type Carrier interface {
	fabric.Endpoint
	fabric.Connector

	// Carry is called once, in state idle. From then on the carrier delivers messages to recv through
	// its own receive.Feed, and its OpRecv and OpRemoteWrite completions have source's number. Nobody
	// submits receives here. Every other op may be submitted from Enable on. Up to Limits.TxSize ops
	// wait for the connection. recv outlives the carrier.
	Carry(recv *receive.Queue, source func() fabric.AVAddr)

	// Abort ends a carrier that did not connect. Waiting ops end with cause. The carrier must still be
	// closed.
	Abort(cause error)
}
