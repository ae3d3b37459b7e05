// SPDX-License-Identifier: MIT

package stream

import (
	"context"
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/layer/rdm"
	"mori/core/fabric/util"
)

var _ rdm.Carrier = (*Endpoint)(nil)

// datagrams makes an EPRDM that adopt has counted.
func (d *Domain) datagrams(in fabric.Info) fabric.Endpoint {
	return rdm.New(rdm.Config{
		Carrier: func() (rdm.Carrier, error) {
			if err := d.adopt("make carrier"); err != nil {
				return nil, err
			}
			return d.connected(), nil
		},
		Listen: func() (fabric.Listener, error) { return d.fabric.Listen(context.Background(), &in) },
		Limits: d.fabric.cfg.Info.Limits,
		Log:    d.fabric.cfg.Logger,
		Leave:  d.parent.Leave,
	})
}

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
