// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/atomics"
)

// Submit assigns each op a slot, queues it in its lane, and posts what it can; see fabric.Endpoint.
func (e *endpoint) Submit(ops []fabric.Op) (n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var last *lane
	for ; n < len(ops); n++ {
		var l *lane
		if l, err = e.accept(&ops[n]); err != nil {
			break
		}
		if last != nil && l != last {
			e.ops.pump(last)
		}
		last = l
	}
	if last != nil {
		e.ops.pump(last)
		e.domain.network.engine.kick()
	}
	return n, err
}

// accept checks op and queues it. The caller holds mu.
func (e *endpoint) accept(op *fabric.Op) (*lane, error) {
	if err := e.State.Submit(op.Kind); err != nil {
		return nil, err
	}
	if err := util.CheckOp(op, &e.limits); err != nil {
		return nil, err
	}
	if err := e.domain.possible(op); err != nil {
		return nil, err
	}
	cq, l, key := e.Queues.Rx, &e.ops.recvs, uint64(0)
	if op.Kind != fabric.OpRecv {
		var err error
		cq, l = e.Queues.Tx, &e.only
		if e.peers != nil {
			if l, err = e.peers.lane(op.Dest); err != nil {
				return nil, err
			}
		}
		if key, err = e.domain.remoteKey(op); err != nil {
			return nil, err
		}
	}
	return l, e.ops.add(op, l, key, cq)
}

// possible rejects what libfabric or its provider does not support.
func (d *domain) possible(op *fabric.Op) error {
	if op.Kind == fabric.OpSend && op.Flags&fabric.OpDeliveryComplete != 0 && d.offer.delivered == 0 {
		return fmt.Errorf("submit send that completes on delivery over %s: %w", d.offer.fi.Provider, fabric.ErrNotSupported)
	}
	if a := op.Atomic; a != nil {
		if n := uint64(d.atomics[op.Kind][a.Op][a.Type] * a.Type.Size()); op.Seg.Len > n {
			return fmt.Errorf("submit %v %v of %d bytes of %v, limit is %d: %w", op.Kind, a.Op, op.Seg.Len, a.Type, n, fabric.ErrNoSys)
		}
	}
	return nil
}

// remoteKey returns libfabric's key of the region that op names, 0 for a message.
func (d *domain) remoteKey(op *fabric.Op) (uint64, error) {
	if op.Kind == fabric.OpSend {
		return 0, nil
	}
	r := d.imports.lookup(op.RSeg.Key)
	if r == nil {
		return 0, fmt.Errorf("submit %v to a region that was not imported: %w", op.Kind, fabric.ErrNoKey)
	}
	// libfabric does not check the alignment.
	if op.Atomic != nil && !atomics.Aligned(r.memory+op.RSeg.Addr-r.base, op.Atomic.Type) {
		return 0, fmt.Errorf("submit %v of %v at %#x, which is not aligned: %w", op.Kind, op.Atomic.Type, op.RSeg.Addr, fabric.ErrInvalid)
	}
	return r.key, nil
}
