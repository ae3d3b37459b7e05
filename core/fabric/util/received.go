// SPDX-License-Identifier: MIT

package util

import "mori/core/fabric"

// Received ends op, a receive that holds a place and was filled, well: with c if a completion is
// due, else in silence. As in Done, counters count either way, and first.
func (q *Queues) Received(op *fabric.Op, c fabric.Completion) {
	if q.RxSelective && op.Flags&fabric.OpWantCQE == 0 {
		q.Rx.Unreserve(1)
		q.count(fabric.OpRecv, c.Len)
		return
	}
	q.count(fabric.OpRecv, c.Len)
	q.Rx.Push(c)
}

// NotReceived ends a receive that holds a place with an error entry.
func (q *Queues) NotReceived(e fabric.ErrEntry) {
	q.countErr(fabric.OpRecv)
	q.Rx.PushErr(e)
}
