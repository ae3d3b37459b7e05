// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"time"

	"mori/core/fabric"
)

var endCases = []testCase{
	{"cancel ends one receive", cancelOne},
	{"cancel of what is over or unknown does nothing", func(r *rig) {
		a, b := r.pair(shape{})
		dst := r.alloc(8)
		receive(a, b, r.patterned(8, 1), dst)
		for _, ctx := range []uint64{77, 0, 12345} {
			r.must(b.ep.Cancel(ctx))
		}
		b.silent()
		r.has(dst, 1, 0)
	}},
	{"shutdown in good order", shutdown},
	{"shutdown under load ends every op before it returns", func(r *rig) { endUnderLoad(r, fabric.Connector.Shutdown) }},
	{"close under load ends every op before it returns", func(r *rig) {
		endUnderLoad(r, func(c fabric.Connector) error { return c.(fabric.Endpoint).Close() })
	}},
	{"nothing lands after close", func(r *rig) {
		const n = 8 << 20
		for _, step := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond} {
			a, b := r.pair(shape{})
			far, local := r.patterned(n, 1), r.alloc(n)
			to := a.imports(b.reg(far, bothRights).Raw())
			for i := range uint64(8) {
				a.submit(fabric.Op{Kind: fabric.OpRead, Seg: local.seg(), RSeg: to.at(0, n), Ctx: i})
			}
			time.Sleep(step)
			r.must(a.ep.Close())
			clear(local.b)
			time.Sleep(20 * time.Millisecond)
			r.zero(local)
		}
	}},
	{"a peer that closes is noticed", peerCloses},
	{"the event comes after the ops ended", func(r *rig) {
		a, b := r.pair(shape{})
		const count = 50
		for i := range uint64(count) {
			b.submit(fabric.Op{Kind: fabric.OpRecv, Ctx: i})
		}
		r.must(a.ep.Close())
		b.event(fabric.EventShutdown)
		if left := tally(b, count, 0); left != 0 {
			r.Errorf("%d receives had not ended", left)
		}
	}},
	{"a region that closes under load is left alone", closeRegion},
	{"a region closes after its users are gone", func(r *rig) {
		a, b := r.pair(shape{})
		far := r.alloc(64)
		mr, err := b.dom.Reg(fabric.Buffer{Addr: far.addr, Len: 64}, bothRights, newKey())
		r.must(err)
		to := a.imports(mr.Raw())
		a.do(fabric.Op{Kind: fabric.OpWrite, Seg: r.patterned(64, 1).seg(), RSeg: to.at(0, 64)})
		r.must(a.ep.Close())
		r.must(mr.Close())
	}},
	{"one connection ends and the others go on", func(r *rig) {
		ha, hb := r.host(), r.host()
		l := hb.listen()
		var as, bs []*node
		for range 3 {
			a, b := ha.node(shape{}), hb.node(shape{})
			r.join(a, b, l)
			as, bs = append(as, a), append(bs, b)
		}
		r.must(bs[1].ep.Close())
		as[1].event(fabric.EventShutdown)
		stillWorks(r, as[0], bs[0])
		stillWorks(r, bs[2], as[2])
	}},
	{"close from many goroutines at once", func(r *rig) {
		a, b := r.pair(shape{})
		done := make(chan error, 16)
		for i := range 16 {
			n := a
			if i%2 == 1 {
				n = b
			}
			go func() { done <- n.ep.Close() }()
		}
		for range 16 {
			r.must(<-done)
		}
	}},
}

func cancelOne(r *rig) {
	a, b := r.pair(shape{})
	bufs := []memory{r.alloc(8), r.alloc(8), r.alloc(8)}
	for i, m := range bufs {
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: m.seg(), Ctx: uint64(i)})
	}
	r.must(b.ep.Cancel(1))
	if e := b.read(); e.Err != fabric.ErrCanceled || e.Ctx != 1 || e.Kind != fabric.OpRecv {
		r.Fatalf("canceled: %+v", e)
	}
	for i := range uint64(2) {
		a.do(fabric.Op{Kind: fabric.OpSend, Seg: r.patterned(8, i).seg()})
		b.ok(2 * i)
	}
	r.has(bufs[0], 0, 0)
	r.zero(bufs[1])
	r.has(bufs[2], 1, 0)
	b.silent()
}

func shutdown(r *rig) {
	a, b := r.pair(shape{})
	src, dst := r.patterned(64, 1), r.alloc(64)
	b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 1}, fabric.Op{Kind: fabric.OpRecv, Ctx: 2})
	a.submit(fabric.Op{Kind: fabric.OpRecv, Ctx: 3})
	a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 4})
	r.must(a.cn.Shutdown())
	if left := tally(a, 1, 0); left != 0 {
		r.Error("shutdown left a receive behind")
	}
	e := b.event(fabric.EventShutdown)
	r.want("the peer's event", e.Err, fabric.ErrShutdown)
	b.ok(1) // stays readable
	r.has(dst, 1, 0)
	if e := b.read(); e.Err == 0 || e.Ctx != 2 {
		r.Errorf("a receive that got nothing: %v", &e)
	}
	for _, n := range []*node{a, b} {
		for _, kind := range []fabric.OpKind{fabric.OpSend, fabric.OpWrite, fabric.OpRead} {
			_, err := n.ep.Submit([]fabric.Op{{Kind: kind}})
			r.want(kind.String()+" after shutdown", err, fabric.ErrNotConn)
		}
		if _, err := n.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}}); err == nil {
			r.Error("a receive after shutdown")
		}
		r.must(n.cn.Shutdown())
		n.silent()
	}
}

// tally reads count entries, whose contexts are 0 to count-1 plus base, each once, and returns how many are missing
// after waiting for as long as patience.
func tally(n *node, count int, patience time.Duration) (left int) {
	n.Helper()
	seen := make(map[uint64]int)
	deadline := time.Now().Add(patience)
	dst := make([]fabric.Completion, 16)
	for len(seen) < count {
		k, err := n.cq.Read(dst)
		if errors.Is(err, fabric.ErrAvail) {
			var e fabric.ErrEntry
			if n.cq.ReadErr(&e) == nil {
				dst[0], k = e.Completion, 1
			}
		} else if k == 0 && time.Now().After(deadline) {
			break
		} else if k == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		for _, c := range dst[:k] {
			if seen[c.Ctx]++; seen[c.Ctx] > 1 {
				n.Fatalf("op %d ended twice", c.Ctx)
			}
		}
	}
	n.silent()
	return count - len(seen)
}

// fill submits ops of all kinds until the endpoint is full or limit, with contexts from 0 on, and returns how many.
func (n *node) fill(limit int, local memory, to target) (count int) {
	n.Helper()
	size := uint64(len(local.b))
	for count < limit {
		op := fabric.Op{Seg: local.seg(), Ctx: uint64(count)}
		switch count % 4 {
		case 0:
			op.Kind, op.RSeg = fabric.OpWrite, to.at(0, size)
		case 1:
			op.Kind, op.RSeg = fabric.OpRead, to.at(0, size)
		case 2:
			op.Kind, op.Seg.Len = fabric.OpSend, min(size, 1000)
		case 3:
			op.Kind, op.Seg.Len = fabric.OpRecv, min(size, 1000)
		}
		k, err := n.ep.Submit([]fabric.Op{op})
		count += k
		if err != nil {
			return count
		}
	}
	return count
}

// endUnderLoad ends a connection that is busy in both directions, from one side.
func endUnderLoad(r *rig, end func(fabric.Connector) error) {
	for _, size := range []int{64, 10000, 2 << 20} {
		for _, wait := range []time.Duration{0, 2 * time.Millisecond} {
			a, b := r.pair(shape{})
			la, lb := r.alloc(size), r.alloc(size)
			toB := a.imports(b.reg(r.alloc(size), bothRights).Raw())
			toA := b.imports(a.reg(r.alloc(size), bothRights).Raw())
			na, nb := a.fill(60, la, toB), b.fill(60, lb, toA)
			time.Sleep(wait)
			r.must(end(a.cn))
			if left := tally(a, na, 0); left != 0 {
				r.Fatalf("%d of %d ops of %d bytes had not ended", left, na, size)
			}
			b.event(fabric.EventShutdown)
			if left := tally(b, nb, 0); left != 0 {
				r.Fatalf("%d of %d ops of the peer had not ended when it was told", left, nb)
			}
		}
	}
}

func peerCloses(r *rig) {
	a, b := r.pair(shape{})
	src, dst := r.patterned(64, 1), r.alloc(64)
	to := a.imports(b.reg(dst, bothRights).Raw())
	a.submit(fabric.Op{Kind: fabric.OpRecv, Ctx: 1})
	a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64), Ctx: 2})
	r.must(b.ep.Close())
	e := a.event(fabric.EventShutdown)
	if !errors.Is(e.Err, fabric.ErrConnReset) && !errors.Is(e.Err, fabric.ErrShutdown) {
		r.Errorf("told as %v", e.Err)
	}
	if e := a.read(); e.Err == 0 || e.Ctx != 1 {
		r.Errorf("the receive: %v", &e)
	}
	_, err := a.ep.Submit([]fabric.Op{{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64)}})
	r.want("write after it", err, fabric.ErrNotConn)
	a.silent()
}

// closeRegion takes a region away from a writer in full swing.
func closeRegion(r *rig) {
	const size, depth = 1 << 20, 4
	a, b := r.pair(shape{})
	src, far := r.patterned(size, 1), r.alloc(size)
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		for _, wait := range []time.Duration{0, 2 * time.Millisecond, 7 * time.Millisecond} {
			mr, err := b.dom.Reg(fabric.Buffer{Addr: far.addr, Len: size}, bothRights, newKey())
			r.must(err)
			to := a.imports(mr.Raw())
			op := fabric.Op{Kind: kind, Seg: src.seg(), RSeg: to.at(0, size)}
			for range depth {
				a.submit(op)
			}
			refused := make(chan error, 1)
			go func() { refused <- keepGoing(a, op, depth) }()
			time.Sleep(wait)
			r.must(mr.Close())
			clear(far.b)
			r.want("the writer's end", <-refused, fabric.ErrNoKey)
			r.zero(far)
		}
	}
	stillWorks(r, a, b)
}

// keepGoing replaces each op that ended well, until they fail; all of them have ended then.
func keepGoing(n *node, op fabric.Op, flying int) (last error) {
	for flying > 0 {
		e, err := next(n.ctx, n.cq)
		if err != nil {
			return err
		}
		if e.Err != 0 {
			last = e.Err
		} else if last == nil {
			if k, err := n.ep.Submit([]fabric.Op{op}); k == 1 {
				continue
			} else if !errors.Is(err, fabric.ErrNoKey) {
				return err
			}
		}
		flying--
	}
	return last
}
