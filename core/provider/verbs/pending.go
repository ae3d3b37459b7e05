// SPDX-License-Identifier: MIT

package verbs

import (
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/pathbase"
)

// A pendingOp is one of our ops, from RMA to its completion. It is reused.
type pendingOp struct {
	payload
	posting

	ticket      conn.Ticket
	parts       []part
	announced   bool // the remote data follows the bytes on the queue pairs
	noticeBytes [noticeLen]byte
}

// ops are the pending ops of a data path.
type ops struct {
	pathbase.Ops

	path    *dataPath
	pending pathbase.Pending[pendingOp]
	numbers atomic.Uint32 // of ops with remote data
}

func (s *ops) init(dp *dataPath) {
	s.Init(dp.port, "verbs")
	s.path = dp
	s.pending.New = func() *pendingOp {
		o := &pendingOp{}
		o.path, o.owner = dp, o
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

// completed ends an op whose work requests have all ended.
func (o *pendingOp) completed() {
	var err error
	if fault := o.fault.Load(); fault != nil {
		err = *fault
	} else if o.spare.of != nil && o.op.Kind == fabric.OpRead {
		err = o.deliver()
	}
	o.path.ops.end(o, err)
}

// end completes an op.
func (s *ops) end(o *pendingOp, err error) {
	notify := o.hasNotice() && !o.announced
	s.Complete(s.free(o), notify, err)
}

// fail is end for an op that was not started.
func (s *ops) fail(o *pendingOp, err error) pathbase.Outcome {
	s.end(o, err)
	return pathbase.Started
}

// handBack returns an op to the stream after RMA has taken it over.
func (s *ops) handBack(o *pendingOp) { s.HandBack(s.free(o)) }

// refuse leaves an op to the stream in RMA.
func (s *ops) refuse(o *pendingOp) {
	s.free(o)
	s.Refuse()
}

// free releases what an op holds and keeps the pendingOp for reuse.
func (s *ops) free(o *pendingOp) conn.Ticket {
	const keepWRs = 1 << 12
	t := o.ticket
	o.release()
	o.payload.reset()
	o.posting.reset()
	clear(o.parts)
	o.parts, o.announced = o.parts[:0], false
	if cap(o.wrs) <= keepWRs && cap(o.runs) <= keepWRs {
		s.pending.Recycle(o)
	} else {
		s.pending.Remove(o)
	}
	return t
}

// holds reports whether a pending op keeps a local region open.
func (s *ops) holds(region uint64) bool {
	return s.pending.Any(func(o *pendingOp) bool { return o.holds(region) })
}
