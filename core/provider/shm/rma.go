// SPDX-License-Identifier: MIT

package shm

import (
	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
	"mori/core/provider/internal/staging"
)

// RMA copies an op on its caller's thread if no op is queued before it, all its pages are in memory
// and these limits are not exceeded. A worker takes about 12 us to start. A copy of 64 KiB takes 7
// us, an entry with its own page 0.4 us. The check of a segment's pages takes 0.4 us here and 0.9
// us in the peer.
const (
	inlineBytes    = 64 << 10
	inlineSegments = 8
	minPage        = 4096
)

// RMA takes over an op; see conn.DataPath.
func (dp *dataPath) RMA(t conn.Ticket, op *fabric.Op, key fabric.RegionKey) bool {
	if dp.greet.reach.way == wayStream || op.Kind != fabric.OpRead && op.Kind != fabric.OpWrite {
		return false
	}
	if dp.device && staging.OnDevice(op) {
		return false
	}
	if !dp.ops.Enter() {
		dp.ep.Finish(t, dp.stopCause())
		return true
	}
	l := dp.findGrant(t, op, key)
	switch {
	case l == nil:
	case l.Refused == fabric.ErrNotSupported:
		dp.ops.Leave()
		return false
	case l.Refused != 0:
		dp.finish(t, dp.refusal(l))
	default:
		dp.start(t, op, l, true)
	}
	return true
}

// start starts an op whose region is granted. If inline is set, it may copy on the caller's thread.
func (dp *dataPath) start(t conn.Ticket, op *fabric.Op, l *regionGrant, inline bool) {
	if err := grant.Check(op, l.Key.ID, l.Region.access, l.Region.size); err != nil {
		dp.end(t, op, l, err)
		return
	}
	n := op.Len()
	if n == 0 {
		dp.end(t, op, l, dp.copies.touch(l))
		return
	}
	w := newWalk(op, n, l.Region.base)
	small := n <= inlineBytes && max(len(op.More), len(op.RMore)) < inlineSegments
	if first := dp.queued.Add(1) == 1; inline && small && first {
		if done, err := dp.copies.now(op, l, w); done {
			dp.copied(t, op, l, err)
			return
		}
	}
	j := dp.jobs.take()
	j.ticket, j.op, j.grant, j.walk = t, op, l, w
	dp.domain.pool.add(j)
}

// copied ends an op after its copy succeeded, or failed with err.
func (dp *dataPath) copied(t conn.Ticket, op *fabric.Op, l *regionGrant, err error) {
	err = dp.copies.sampled(op, op.Len(), l, err)
	dp.queued.Add(-1)
	dp.end(t, op, l, err)
}

// copyJob is called by the pool to copy a slice.
func (dp *dataPath) copyJob(j *job, s *slice) error {
	if j.grant == nil {
		return dp.copies.pullSlice(s)
	}
	return dp.copies.copySlice(j.op.Kind, j.grant, s)
}

// finishJob is called by the pool when a job ends.
func (dp *dataPath) finishJob(j *job, err error) {
	if j.grant == nil {
		dp.finishPull(j, err)
		return
	}
	t, op, l := j.ticket, j.op, j.grant
	dp.jobs.release(j)
	dp.copied(t, op, l, err)
}

// end finishes an op. If its remote data must wait for room in the ring, the notifier finishes it
// later.
func (dp *dataPath) end(t conn.Ticket, op *fabric.Op, l *regionGrant, err error) {
	if err == nil && op.Kind == fabric.OpWrite && op.Flags&fabric.OpRemoteData != 0 {
		dp.notifier.announce(t, op, l)
		return
	}
	dp.finish(t, err)
}

// finish returns the op to the stream, which may start other ops. The caller holds no lock.
func (dp *dataPath) finish(t conn.Ticket, err error) {
	dp.ep.Finish(t, err)
	dp.ops.Leave()
}
