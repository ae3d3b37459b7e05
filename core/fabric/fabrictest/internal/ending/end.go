// SPDX-License-Identifier: MIT

package ending

import (
	"errors"
	"slices"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// EndCases are the cases of connections that end.
var EndCases = []rig.Case{
	{Name: "close under load ends every op before it returns", Run: func(r *rig.Rig) { endUnderLoad(r, func(n *rig.Node) error { return n.EP.Close() }) }},
	{Name: "nothing lands after close", Run: func(r *rig.Rig) {
		const n = 8 << 20
		for _, step := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond} {
			a, b := r.Pair(rig.Shape{})
			far, local := r.Patterned(n, 1), r.Alloc(n)
			to := a.Imports(b.Reg(far, rig.BothRights).Raw())
			for i := range uint64(8) {
				a.Submit(fabric.Op{Kind: fabric.OpRead, Seg: local.Seg(), RSeg: to.At(0, n), Ctx: i})
			}
			time.Sleep(step)
			r.Must(a.EP.Close())
			clear(local.B)
			time.Sleep(20 * time.Millisecond)
			r.Zero(local)
		}
	}},
	{Name: "a region that closes under load is left alone", Run: closeRegion},
	{Name: "a region closes after its users", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		far := r.Alloc(64)
		mr, err := b.Dom.Reg(fabric.Buffer{Addr: far.Addr, Len: 64}, rig.BothRights, rig.NewKey())
		r.Must(err)
		to := a.Imports(mr.Raw())
		a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: r.Patterned(64, 1).Seg(), RSeg: to.At(0, 64)})
		r.Must(a.EP.Close())
		r.Must(mr.Close())
	}},
	{Name: "close from many goroutines at once", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		done := make(chan error, 16)
		for i := range 16 {
			n := a
			if i%2 == 1 {
				n = b
			}
			go func() { done <- n.EP.Close() }()
		}
		for range 16 {
			r.Must(<-done)
		}
	}},
}

// fillPeer submits ops of all kinds until the endpoint is full or limit, with contexts from 0 on,
// and returns how many.
func fillPeer(n *rig.Node, limit int, local rig.Buffer, to rig.Target) (count int) {
	n.Helper()
	size := uint64(len(local.B))
	for count < limit {
		op := fabric.Op{Seg: local.Seg(), Ctx: uint64(count)}
		switch count % 4 {
		case 0:
			op.Kind, op.RSeg = fabric.OpWrite, to.At(0, size)
		case 1:
			op.Kind, op.RSeg = fabric.OpRead, to.At(0, size)
		case 2:
			op.Kind, op.Seg.Len = fabric.OpSend, min(size, 1000)
		case 3:
			op.Kind, op.Seg.Len = fabric.OpRecv, min(size, 1000)
		}
		k, err := n.EP.Submit([]fabric.Op{op})
		count += k
		if err != nil {
			return count
		}
	}
	return count
}

// endUnderLoad ends a connection that is busy in both directions, from one side.
func endUnderLoad(r *rig.Rig, end func(*rig.Node) error) {
	for _, size := range []int{64, 10000, 2 << 20} {
		for _, wait := range []time.Duration{0, 2 * time.Millisecond} {
			a, b := r.Pair(rig.Shape{})
			la, lb := r.Alloc(size), r.Alloc(size)
			toB := a.Imports(b.Reg(r.Alloc(size), rig.BothRights).Raw())
			toA := b.Imports(a.Reg(r.Alloc(size), rig.BothRights).Raw())
			na, nb := fillPeer(a, 60, la, toB), fillPeer(b, 60, lb, toA)
			time.Sleep(wait)
			r.Must(end(a))
			if left := rig.Tally(a, na, 0); left != 0 {
				r.Fatalf("%d of %d ops of %d bytes had not ended", left, na, size)
			}
			if r.RDM() {
				r.Must(b.EP.Close()) // ends the receives, which anybody might have filled
			} else {
				b.Event(fabric.EventShutdown)
			}
			if left := rig.Tally(b, nb, 0); left != 0 {
				r.Fatalf("%d of %d ops of the peer had not ended when the event came", left, nb)
			}
		}
	}
}

// closeRegion takes a region away from a writer in full swing.
func closeRegion(r *rig.Rig) {
	const size, depth = 1 << 20, 4
	src, far := r.Patterned(size, 1), r.Alloc(size)
	a, b := r.Pair(rig.Shape{})
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		for _, wait := range []time.Duration{0, 2 * time.Millisecond, 7 * time.Millisecond} {
			mr, err := b.Dom.Reg(fabric.Buffer{Addr: far.Addr, Len: size}, rig.BothRights, rig.NewKey())
			r.Must(err)
			to := a.Imports(mr.Raw())
			op := fabric.Op{Kind: kind, Seg: src.Seg(), RSeg: to.At(0, size)}
			for range depth {
				a.Submit(op)
			}
			refused := make(chan error, 1)
			go func() { refused <- keepGoing(a, op, depth) }()
			time.Sleep(wait)
			r.Must(mr.Close())
			clear(far.B)
			if err := <-refused; !slices.Contains(r.Denial(fabric.ErrNoKey), fabric.ErrnoOf(err)) {
				r.Fatalf("the %v ended with %v", kind, err)
			}
			r.Zero(far)
			if r.DenialEnds() {
				a, b = r.Pair(rig.Shape{})
			}
		}
	}
	rig.StillWorks(r, a, b)
}

// keepGoing replaces each successful op by a new one, until they fail. When it returns, all have
// ended.
func keepGoing(n *rig.Node, op fabric.Op, flying int) (last error) {
	for flying > 0 {
		e, err := rig.Next(n.Ctx, n.CQ)
		if err != nil {
			return err
		}
		if e.Err != 0 {
			last = e.Err
		} else if last == nil {
			k, err := n.Try(op)
			if k == 1 {
				continue
			}
			if last = err; n.DenialEnds() && errors.Is(err, fabric.ErrNotConn) {
				last = fabric.ErrConnReset // the refusal of an earlier op ended the connection
			}
		}
		flying--
	}
	return last
}
