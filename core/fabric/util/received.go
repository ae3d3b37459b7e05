// SPDX-License-Identifier: MIT

package util

import "mori/core/fabric"

// Received ends op, a receive that holds a place and that a transport with matching of its own has filled, well: with c if a
// completion is due, else in silence; counters count either way.
func (q *Queues) Received(op *fabric.Op, c fabric.Completion) {
	if q.RxSelective && op.Flags&fabric.OpWantCQE == 0 {
		q.Rx.Unreserve(1)
	} else {
		q.Rx.Push(c)
	}
	q.count(fabric.OpRecv, c.Len)
}

// NotReceived ends a receive that holds a place with an error entry.
func (q *Queues) NotReceived(e fabric.ErrEntry) {
	q.Rx.PushErr(e)
	q.countErr(fabric.OpRecv)
}
