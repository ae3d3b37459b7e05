// SPDX-License-Identifier: MIT

package mem

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
)

// pieceBytes is what is copied between two looks at whether the connection has ended.
const pieceBytes = 1 << 20

// execute ends the op of t, one way or the other, or lets it end when its message is placed.
func (e *endpoint) execute(l *link, peer *endpoint, t *task) {
	op := &t.op
	if op.Flags&fabric.OpInject != 0 {
		op.Seg.Addr = sys.AddrOf(t.inject[:])
		op.Atomic = &t.atomic
	}
	if fault := e.domain.network.provider.opts.Fault; fault != nil {
		if err := fault(op); err != nil {
			l.end(e, fabric.ErrConnReset, fabric.ErrConnReset)
			e.failed(op, fabric.ErrConnReset, err.Error())
			return
		}
	}
	later, err := e.perform(l, peer, op)
	switch {
	case err != nil:
		e.failed(op, fabric.ErrnoOf(err), err.Error())
	case !later:
		e.done(op)
	}
}

// perform does op; later means that placed will end it.
func (e *endpoint) perform(l *link, peer *endpoint, op *fabric.Op) (later bool, err error) {
	for op.Flags&fabric.OpFence != 0 && !e.settled() {
		if err := e.sleep(l); err != nil {
			return false, err
		}
	}
	switch op.Kind {
	case fabric.OpSend:
		return e.send(l, peer, op)
	case fabric.OpRead, fabric.OpWrite:
		return false, e.rma(l, peer, op)
	}
	return false, e.atomic(peer, op)
}

// send moves a message into the peer's oldest receive, or into its memory for early messages, or
// waits for either.
func (e *endpoint) send(l *link, peer *endpoint, op *fabric.Op) (later bool, err error) {
	n := op.Len()
	for {
		if to, ok := peer.feed.Take(); ok {
			fill(&to, op)
			peer.feed.Filled(&to, n, op.Data, op.Flags)
			return false, nil
		}
		if peer.feed.Hold(n) {
			token := e.place(op)
			peer.feed.Deliver(gathered(op, n), op.Data, op.Flags, token)
			return token != 0, nil
		}
		if err := e.sleep(l); err != nil {
			return false, err
		}
	}
}

// over is the error of what the end of the connection interrupts.
func (l *link) over(e *endpoint) error {
	return fmt.Errorf("connection to %s ended: %w", e.peerName, l.cause[l.side(e)])
}

// fill copies as much of the message msg as there is space in the receive to.
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

// rma checks the peer's region, copies, and notifies the peer if the op carries data.
func (e *endpoint) rma(l *link, peer *endpoint, op *fabric.Op) error {
	if err := e.access(l, peer, op); err != nil {
		return err
	}
	if op.Flags&fabric.OpRemoteData == 0 {
		return nil
	}
	c := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Len: op.Len(), Data: op.Data}
	if peer.source != nil {
		c.Src = peer.source()
	}
	for !peer.queues.Rx.TryPush(c) {
		if err := e.sleep(l); err != nil {
			return err
		}
	}
	return nil
}

// acquire is the peer's region that op names, with the rights it needs. The caller releases it.
func (e *endpoint) acquire(peer *endpoint, op *fabric.Op) (*util.MR, error) {
	r := e.domain.imports.Lookup(op.RSeg.Key)
	if r == nil {
		return nil, fmt.Errorf("no region is imported as key %#x: %w", op.RSeg.Key, fabric.ErrNoKey)
	}
	m, err := peer.domain.regions.Acquire(r.Region, op.Access())
	if err != nil {
		return nil, fmt.Errorf("region %d of %s: %w", r.Region.ID, e.peerName, err)
	}
	return m, nil
}

// access moves the bytes of a read or write. Nothing is touched unless every segment is inside the
// region.
func (e *endpoint) access(l *link, peer *endpoint, op *fabric.Op) error {
	m, err := e.acquire(peer, op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := inside(m, op); err != nil {
		return fmt.Errorf("region %d of %s, %d bytes: %w", m.Key().ID, e.peerName, m.Buffer().Len, err)
	}
	base := m.Buffer().Addr
	w := util.NewWalk(op)
	for {
		local, off, n, ok := w.Next()
		if !ok {
			return nil
		}
		for n > 0 {
			if isClosed(l.done) {
				return l.over(e)
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

func inside(m *util.MR, op *fabric.Op) error {
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

// atomic executes the op in the peer's memory.
func (e *endpoint) atomic(peer *endpoint, op *fabric.Op) error {
	m, err := e.acquire(peer, op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := inside(m, op); err != nil {
		return fmt.Errorf("region %d of %s, %d bytes: %w", m.Key().ID, e.peerName, m.Buffer().Len, err)
	}
	a, n := op.Atomic, int(op.Seg.Len)
	at := m.Buffer().Addr + op.RSeg.Addr
	if !util.AtomicAligned(at, a.Type) {
		return fmt.Errorf("region %d of %s: offset %d is not aligned to %v: %w", m.Key().ID, e.peerName, op.RSeg.Addr, a.Type, fabric.ErrInvalid)
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
	util.Execute(op.Kind, a.Op, a.Type, at, operand, compare, result)
	return nil
}
