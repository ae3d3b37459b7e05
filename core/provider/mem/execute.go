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

// execute ends the op in e.cur, one way or the other.
func (e *endpoint) execute(l *link, peer *endpoint) {
	op := &e.cur.op
	if op.Flags&fabric.OpInject != 0 {
		op.Seg.Addr = sys.AddrOf(e.cur.inject[:])
	}
	if fault := e.domain.network.provider.opts.Fault; fault != nil {
		if err := fault(op); err != nil {
			l.end(e, fabric.ErrConnReset, fabric.ErrConnReset)
			e.queues.Failed(op, fabric.ErrConnReset, err.Error())
			return
		}
	}
	var err error
	if op.Kind == fabric.OpSend {
		err = e.send(l, peer, op)
	} else {
		err = e.rma(l, peer, op)
	}
	if err != nil {
		e.queues.Failed(op, fabric.ErrnoOf(err), err.Error())
		return
	}
	e.queues.Done(op, op.Len())
}

// send moves a message into the peer's oldest receive, or into its memory for early messages, or waits for either.
func (e *endpoint) send(l *link, peer *endpoint, op *fabric.Op) error {
	n := op.Len()
	for {
		if to, ok := peer.recv.Take(); ok {
			fill(&to, op)
			peer.recv.Filled(&to, n, op.Data, op.Flags)
			return nil
		}
		if peer.recv.Hold(n) {
			peer.recv.Deliver(gathered(op, n), op.Data, op.Flags)
			return nil
		}
		select {
		case <-peer.recv.Posted():
		case <-l.done:
			return l.over(e)
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

// rma checks the peer's region, copies, and tells the peer if the op carries data.
func (e *endpoint) rma(l *link, peer *endpoint, op *fabric.Op) error {
	if err := e.access(l, peer, op); err != nil {
		return err
	}
	if op.Flags&fabric.OpRemoteData == 0 {
		return nil
	}
	c := fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Len: op.Len(), Data: op.Data}
	for !peer.queues.Rx.TryPush(c) {
		select {
		case <-e.space:
		case <-l.done:
			return l.over(e)
		}
	}
	return nil
}

// access moves the bytes of a read or write. Nothing is touched unless every segment is inside the region.
func (e *endpoint) access(l *link, peer *endpoint, op *fabric.Op) error {
	r := e.domain.imports.Lookup(op.RSeg.Key)
	if r == nil {
		return fmt.Errorf("no region is imported as key %#x: %w", op.RSeg.Key, fabric.ErrNoKey)
	}
	want := fabric.AccessRemoteWrite
	if op.Kind == fabric.OpRead {
		want = fabric.AccessRemoteRead
	}
	m, err := peer.domain.regions.Acquire(r.Region, want)
	if err != nil {
		return fmt.Errorf("region %d of %s: %w", r.Region.ID, e.peerName, err)
	}
	defer m.Release()
	if err := inside(m, op); err != nil {
		return fmt.Errorf("region %d of %s, %d bytes: %w", r.Region.ID, e.peerName, m.Buffer().Len, err)
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
