// SPDX-License-Identifier: MIT

package p2p

import (
	"slices"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/local"
	"mori/core/provider/internal/pathbase"
)

// A pendingOp is one of our ops, from RMA to its completion. It is reused.
type pendingOp struct {
	payload

	ticket conn.Ticket
	op     *fabric.Op
	ended  atomic.Bool // completed, or returned to the stream
	order  sentOrder   // of an op that the peer copies
}

// ops are the pending ops of a data path.
type ops struct {
	pathbase.Ops

	path    *dataPath
	pending pathbase.Pending[pendingOp]
}

func (s *ops) init(dp *dataPath) {
	s.Init(dp.port, "p2p")
	s.path = dp
	s.pending.New = func() *pendingOp {
		o := &pendingOp{}
		o.init(dp, o)
		return o
	}
}

// add makes an op pending. After Stop it ends the op and returns nil.
func (s *ops) add(t conn.Ticket, op *fabric.Op) *pendingOp {
	if !s.Admit(t) {
		return nil
	}
	o := s.pending.Get()
	o.ticket, o.op = t, op
	s.pending.Add(o)
	return o
}

// launch starts the copy of a prepared op.
func (s *ops) launch(o *pendingOp) {
	s.note(o)
	if err := s.path.domain.engine.start(&o.copyJob); err != nil {
		o.copied(err)
	}
}

// note records, for holds, which local regions o keeps open from now on.
func (s *ops) note(o *pendingOp) {
	s.pending.Lock()
	defer s.pending.Unlock()
	o.noteRegions()
}

// holds reports whether a pending op keeps a local region open.
func (s *ops) holds(region uint64) bool {
	return s.pending.Any(func(o *pendingOp) bool { return slices.Contains(o.regions, region) })
}

// copied ends an op whose copy has ended; see copyOwner.
func (o *pendingOp) copied(err error) {
	dp := o.path
	switch {
	case err != nil:
		err = o.fault(err)
	case !dp.peer.same && dp.peer.process.Dead():
		// The memory exists as long as it is mapped here: the copy succeeded, but no process has the
		// bytes.
		err = local.OpFault(fabric.ErrConnReset, "the peer's process %d has ended", dp.peer.process.PID)
	}
	dp.ops.end(o, err)
}

// end completes an op, unless abandon has done so.
func (s *ops) end(o *pendingOp, err error) {
	if t, op := s.take(o); op != nil {
		s.Complete(t, op.Kind == fabric.OpWrite && op.Flags&fabric.OpRemoteData != 0, err)
	}
}

// fail is end for an op that was not started.
func (s *ops) fail(o *pendingOp, err error) pathbase.Outcome {
	s.end(o, err)
	return pathbase.Started
}

// handBack returns an op to the stream after RMA has taken it over.
func (s *ops) handBack(o *pendingOp) {
	if t, op := s.take(o); op != nil {
		s.HandBack(t)
	}
}

// refuse leaves an op to the stream in RMA. It returns false if the op has ended meanwhile.
func (s *ops) refuse(o *pendingOp) bool {
	if _, op := s.take(o); op == nil {
		return false
	}
	s.Refuse()
	return true
}

// take releases what an op holds. It returns the op if the caller must end it, and nil if abandon
// has ended it.
func (s *ops) take(o *pendingOp) (t conn.Ticket, op *fabric.Op) {
	s.pending.Remove(o) // before what holds reads changes
	o.release()
	if !o.ended.CompareAndSwap(false, true) {
		return 0, nil
	}
	t, op = o.ticket, o.op
	o.reset()
	o.ticket, o.op, o.order = 0, nil, sentOrder{}
	o.ended.Store(false)
	s.pending.Recycle(o)
	return t, op
}

// abandon ends the ops whose copies a device does not end. It returns their number.
func (s *ops) abandon() int {
	var late []conn.Ticket
	copies := 0
	s.pending.Any(func(o *pendingOp) bool {
		if copies++; o.ended.CompareAndSwap(false, true) {
			late = append(late, o.ticket)
		}
		return false
	})
	dp := s.path
	for _, t := range late {
		s.Complete(t, false, local.OpFault(fabric.ErrTimeout, "the device did not finish its copy with %s within %v: its memory must not be used again", dp.port.Peer(), dp.within))
	}
	return copies
}
