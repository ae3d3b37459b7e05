// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// Carry makes the endpoint serve an EPRDM endpoint; see rdm.Carrier.
func (ep *Endpoint) Carry(recv *util.RecvQueue, source func() fabric.AVAddr) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.carries, ep.recv, ep.source = true, recv, source
}

// Abort ends a carrier that did not connect; see rdm.Carrier. It returns at once.
func (ep *Endpoint) Abort(cause error) { ep.end(cause, false) }

// mayTake is nil if an op of this kind may be submitted now. The causes come bare.
func (ep *Endpoint) mayTake(kind fabric.OpKind) error {
	if !ep.carries {
		return ep.state.Submit(kind)
	}
	if kind == fabric.OpRecv {
		return fmt.Errorf("submit a receive to an endpoint that has none of its own: %w", fabric.ErrInvalid)
	}
	return ep.state.SubmitEarly()
}

// from is the peer's number for completions.
func (ep *Endpoint) from() fabric.AVAddr {
	if ep.source == nil {
		return 0
	}
	return ep.source()
}
