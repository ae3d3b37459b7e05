// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"slices"
	"time"

	"mori/core/fabric"
)

var endCases = []testCase{
	{"close under load ends every op before it returns", func(r *rig) { endUnderLoad(r, func(n *node) error { return n.ep.Close() }) }},
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
	{"a region that closes under load is left alone", closeRegion},
	{"a region closes after its users", func(r *rig) {
		a, b := r.pair(shape{})
		far := r.alloc(64)
		mr, err := b.dom.Reg(fabric.Buffer{Addr: far.addr, Len: 64}, bothRights, newKey())
		r.must(err)
		to := a.imports(mr.Raw())
		a.do(fabric.Op{Kind: fabric.OpWrite, Seg: r.patterned(64, 1).seg(), RSeg: to.at(0, 64)})
		r.must(a.ep.Close())
		r.must(mr.Close())
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

// tally reads count entries, whose contexts are 0 to count-1 plus base, each once, and returns how
// many are missing after waiting for as long as patience.
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

// fill submits ops of all kinds until the endpoint is full or limit, with contexts from 0 on, and
// returns how many.
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
func endUnderLoad(r *rig, end func(*node) error) {
	for _, size := range []int{64, 10000, 2 << 20} {
		for _, wait := range []time.Duration{0, 2 * time.Millisecond} {
			a, b := r.pair(shape{})
			la, lb := r.alloc(size), r.alloc(size)
			toB := a.imports(b.reg(r.alloc(size), bothRights).Raw())
			toA := b.imports(a.reg(r.alloc(size), bothRights).Raw())
			na, nb := a.fill(60, la, toB), b.fill(60, lb, toA)
			time.Sleep(wait)
			r.must(end(a))
			if left := tally(a, na, 0); left != 0 {
				r.Fatalf("%d of %d ops of %d bytes had not ended", left, na, size)
			}
			if r.rdm() {
				r.must(b.ep.Close()) // ends the receives, which anybody might have filled
			} else {
				b.event(fabric.EventShutdown)
			}
			if left := tally(b, nb, 0); left != 0 {
				r.Fatalf("%d of %d ops of the peer had not ended when it was told", left, nb)
			}
		}
	}
}

// closeRegion takes a region away from a writer in full swing.
func closeRegion(r *rig) {
	const size, depth = 1 << 20, 4
	src, far := r.patterned(size, 1), r.alloc(size)
	a, b := r.pair(shape{})
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
			if err := <-refused; !slices.Contains(r.denial(fabric.ErrNoKey), fabric.ErrnoOf(err)) {
				r.Fatalf("the %v ended with %v", kind, err)
			}
			r.zero(far)
			if r.fatal() {
				a, b = r.pair(shape{})
			}
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
			k, err := n.try(op)
			if k == 1 {
				continue
			}
			if last = err; n.fatal() && errors.Is(err, fabric.ErrNotConn) {
				last = fabric.ErrConnReset // the refusal of an earlier op ended the connection
			}
		}
		flying--
	}
	return last
}
