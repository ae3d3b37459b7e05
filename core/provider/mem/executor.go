// SPDX-License-Identifier: MIT

package mem

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/atomics"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
)

// pieceBytes is how much is copied between two checks whether the connection has ended.
const pieceBytes = 1 << 20

// An executor executes the ops of one end of a link on the memory of both ends.
type executor struct {
	*link
	self, peer *endpoint
	ops        *pendingOps // of self
}

func newExecutor(l *link, self *endpoint) *executor {
	return &executor{link: l, self: self, peer: l.ends[1-l.side(self)], ops: &self.pending}
}

// run executes ops until the link ends, and then ends the remaining ops.
func (x *executor) run() {
	forget := x.peer.Queues.Rx.OnSpace(x.ops.wakeUp)
	for !isClosed(x.done) {
		if t := x.ops.next(); t != nil {
			x.execute(t)
		} else {
			_ = x.sleep()
		}
	}
	forget()
	close(x.self.quiet)
	<-x.peer.quiet
	x.self.finish(x.cause[x.side(x.self)])
}

// sleep waits for a change. It returns an error if the link has ended.
func (x *executor) sleep() error {
	select {
	case <-x.ops.wake:
		return nil
	case <-x.done:
		return x.over()
	}
}

// execute ends the op of t with success or failure, or leaves that to placed.
func (x *executor) execute(t *task) {
	op := &t.op
	if op.Flags&fabric.OpInject != 0 {
		op.Seg.Addr = sys.AddrOf(t.inject[:])
		op.Atomic = &t.atomic
	}
	if fault := x.self.domain.network.provider.opts.Fault; fault != nil {
		if err := fault(op); err != nil {
			x.end(x.self, fabric.ErrConnReset, fabric.ErrConnReset)
			x.ops.failed(op, fabric.ErrConnReset, err.Error())
			return
		}
	}
	later, err := x.perform(op)
	switch {
	case err != nil:
		x.ops.failed(op, fabric.ErrnoOf(err), err.Error())
	case !later:
		x.ops.done(op)
	}
}

// perform executes op. later means that placed will end it.
func (x *executor) perform(op *fabric.Op) (later bool, err error) {
	for op.Flags&fabric.OpFence != 0 && !x.ops.settled() {
		if err := x.sleep(); err != nil {
			return false, err
		}
	}
	switch op.Kind {
	case fabric.OpSend:
		return x.send(op)
	case fabric.OpRead, fabric.OpWrite:
		return false, x.rma(op)
	}
	return false, x.atomic(op)
}

// send copies a message into the peer's oldest receive, or into the peer's memory for early
// messages. It waits until one of them is available.
func (x *executor) send(op *fabric.Op) (later bool, err error) {
	n := op.Len()
	for {
		if to, ok := x.peer.feed.Take(); ok {
			fill(&to, op)
			x.peer.feed.Filled(&to, n, op.Data, op.Flags)
			return false, nil
		}
		if x.peer.feed.Hold(n) {
			token := x.ops.place(op)
			x.peer.feed.Deliver(gathered(op, n), op.Data, op.Flags, token)
			return token != 0, nil
		}
		if err := x.sleep(); err != nil {
			return false, err
		}
	}
}

// over returns the error of an op that the end of the connection interrupts.
func (x *executor) over() error {
	return fmt.Errorf("connection to %s ended: %w", x.self.peerName, x.cause[x.side(x.self)])
}

// fill copies as much of the message msg as fits into the receive to.
func fill(to, msg *fabric.Op) {
	both := fabric.Op{Seg: msg.Seg, More: msg.More, RSeg: fabric.RSeg{Addr: to.Seg.Addr, Len: to.Seg.Len}}
	for i := range to.More {
		both.RMore = append(both.RMore, fabric.RSeg{Addr: to.More[i].Addr, Len: to.More[i].Len})
	}
	w := util.NewWalk(&both)
	for {
		local, remote, n, ok := w.Next()
		if !ok {
			return
		}
		copy(sys.Bytes(remote, int(n)), sys.Bytes(local, int(n)))
	}
}

func gathered(op *fabric.Op, n uint64) []byte {
	b := make([]byte, 0, n)
	b = append(b, sys.Bytes(op.Seg.Addr, int(op.Seg.Len))...)
	for _, s := range op.More {
		b = append(b, sys.Bytes(s.Addr, int(s.Len))...)
	}
	return b
}

// rma checks the peer's region, copies, and notifies the peer if the op has remote data.
func (x *executor) rma(op *fabric.Op) error {
	if err := x.access(op); err != nil {
		return err
	}
	if op.Flags&fabric.OpRemoteData == 0 {
		return nil
	}
	c := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Len: op.Len(), Data: op.Data}
	if x.peer.source != nil {
		c.Src = x.peer.source()
	}
	for !x.peer.Queues.Rx.TryPush(c) {
		if err := x.sleep(); err != nil {
			return err
		}
	}
	return nil
}

// acquire returns the peer's region that op names, if it grants the rights that op needs and
// contains every segment. The caller releases it.
func (x *executor) acquire(op *fabric.Op) (*regions.MR, error) {
	r := x.self.domain.imports.Lookup(op.RSeg.Key)
	if r == nil {
		return nil, fmt.Errorf("key %#x is not an imported region: %w", op.RSeg.Key, fabric.ErrNoKey)
	}
	m, err := x.peer.domain.regions.Acquire(r.Region, op.Access())
	if err != nil {
		return nil, fmt.Errorf("region %d of %s: %w", r.Region.ID, x.self.peerName, err)
	}
	if err := inside(m, op); err != nil {
		m.Release()
		return nil, fmt.Errorf("region %d of %s, %d bytes: %w", r.Region.ID, x.self.peerName, m.Buffer().Len, err)
	}
	return m, nil
}

// access copies the bytes of a read or write.
func (x *executor) access(op *fabric.Op) error {
	m, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	base := m.Buffer().Addr
	w := util.NewWalk(op)
	for {
		local, off, n, ok := w.Next()
		if !ok {
			return nil
		}
		for n > 0 {
			if isClosed(x.done) {
				return x.over()
			}
			k := min(n, pieceBytes)
			from, to := local, base+off
			if op.Kind == fabric.OpRead {
				from, to = to, from
			}
			copy(sys.Bytes(to, int(k)), sys.Bytes(from, int(k)))
			local, off, n = local+k, off+k, n-k
		}
	}
}

func inside(m *regions.MR, op *fabric.Op) error {
	if _, err := m.Range(op.RSeg.Addr, op.RSeg.Len); err != nil {
		return fmt.Errorf("at offset %d for %d bytes: %w", op.RSeg.Addr, op.RSeg.Len, err)
	}
	for i := range op.RMore {
		if _, err := m.Range(op.RMore[i].Addr, op.RMore[i].Len); err != nil {
			return fmt.Errorf("at offset %d for %d bytes: %w", op.RMore[i].Addr, op.RMore[i].Len, err)
		}
	}
	return nil
}

// atomic executes an atomic in the peer's memory.
func (x *executor) atomic(op *fabric.Op) error {
	m, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	a, n := op.Atomic, int(op.Seg.Len)
	at := m.Buffer().Addr + op.RSeg.Addr
	if !atomics.Aligned(at, a.Type) {
		return fmt.Errorf("region %d of %s: offset %d is not aligned to %v: %w", m.Key().ID, x.self.peerName, op.RSeg.Addr, a.Type, fabric.ErrInvalid)
	}
	var operand, compare, result []byte
	if a.Op != fabric.AtomicRead {
		operand = sys.Bytes(op.Seg.Addr, n)
	}
	if op.Kind == fabric.OpCompareAtomic {
		compare = sys.Bytes(a.Compare.Addr, n)
	}
	if op.Kind != fabric.OpAtomic {
		result = sys.Bytes(a.Result.Addr, n)
	}
	atomics.Execute(op.Kind, a.Op, a.Type, at, operand, compare, result)
	return nil
}
