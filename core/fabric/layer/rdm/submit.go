// SPDX-License-Identifier: MIT

package rdm

import (
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// maxReroutes bounds how often one Submit retries because its route has ended.
const maxReroutes = 3

// Submit passes each run of ops to the same peer to its carrier; see fabric.Endpoint.
func (e *Endpoint) Submit(ops []fabric.Op) (int, error) {
	if err := e.State.SubmitEarly(); err != nil {
		return 0, err
	}
	for taken := 0; taken < len(ops); {
		n, err := e.submitRun(ops[taken:])
		taken += n
		if err != nil {
			return taken, err
		}
	}
	return len(ops), nil
}

// submitRun submits one receive, or the leading ops that go to the same peer.
func (e *Endpoint) submitRun(ops []fabric.Op) (int, error) {
	if ops[0].Kind == fabric.OpRecv {
		if err := e.post(&ops[0]); err != nil {
			return 0, err
		}
		return 1, nil
	}
	n := 1
	for n < len(ops) && ops[n].Dest == ops[0].Dest && ops[n].Kind != fabric.OpRecv {
		n++
	}
	return e.send(ops[0].Dest, ops[:n])
}

func (e *Endpoint) post(op *fabric.Op) error {
	if err := util.CheckOp(op, &e.cfg.Limits); err != nil {
		return err
	}
	err := e.recv.Post(op)
	if err == fabric.ErrCanceled { // Close ran in between
		return fabric.ErrClosed
	}
	return err
}

// send submits ops to the carrier of dest. It may submit only a part and return no error, if the
// route ends meanwhile.
func (e *Endpoint) send(dest fabric.AVAddr, ops []fabric.Op) (int, error) {
	peer, err := e.av.Lookup(dest)
	if err != nil {
		return 0, fmt.Errorf("submit %v: %w", ops[0].Kind, err)
	}
	c := e.conns.routes.at(dest)
	if c == nil || c.peer != peer {
		if c, err = e.conns.route(dest, peer, &ops[0], nil); err != nil {
			return 0, err
		}
	}
	for range maxReroutes {
		n, err := c.carrier.Submit(ops)
		if n > 0 && over(err) {
			return n, nil
		}
		if !over(err) {
			return n, err
		}
		if c, err = e.conns.route(dest, peer, &ops[0], c); err != nil {
			return 0, err
		}
	}
	return 0, fabric.ErrAgain
}

// over reports whether a carrier refused an op because its connection has ended.
func over(err error) bool {
	return err != nil && (errors.Is(err, fabric.ErrNotConn) || errors.Is(err, fabric.ErrClosed))
}
