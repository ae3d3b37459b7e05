// SPDX-License-Identifier: MIT

package fabrictest

import (
	"context"
	"sync"
	"time"

	"mori/core/fabric"
)

var counterCases = []testCase{
	{"each event is counted by its counter and no other", countEach},
	{"one counter for all events of many endpoints", func(r *rig) {
		const nodes, rounds = 4, 10
		ha, hb := r.host(), r.host()
		c := ha.counter()
		count := func(n *node) { n.must(n.ep.BindCounter(c, fabric.CountAll)) }
		src, far := r.patterned(8, 1), r.alloc(8)
		to := ha.imports(hb.reg(far, bothRights).Raw())
		for range nodes {
			a := ha.node(shape{bind: count})
			r.join(a, hb.node(shape{}))
			for i := range uint64(rounds) {
				a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8), Ctx: i})
			}
		}
		r.counts(c, nodes*rounds)
	}},
	{"ops that report no success count, too", func(r *rig) {
		ha := r.host()
		c := ha.counter()
		a := ha.node(shape{selective: true, bind: func(n *node) { n.must(n.ep.BindCounter(c, fabric.CountWrite|fabric.CountSend)) }})
		b := r.host().node(shape{})
		r.join(a, b)
		src, far := r.patterned(8, 1), r.alloc(8)
		to := a.imports(b.reg(far, bothRights).Raw())
		write := fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8)}
		want := uint64(0)
		for range 20 {
			b.submit(fabric.Op{Kind: fabric.OpRecv})
			a.submit(write, fabric.Op{Kind: fabric.OpSend})
			want += 2
			if r.info.Limits.MaxInject >= 8 {
				write.Flags ^= fabric.OpInject
			}
		}
		r.counts(c, want)
		a.silent()
	}},
	{"failures are counted apart", countFailures},
	{"a wait ends at its threshold, with its context, and with the counter", countWaits},
	{"a waiter wakes at its threshold", countWakes},
	{"a count is set and added to", countSet},
	{"a counter of bytes counts bytes or is refused", countBytes},
	{"a counter is bound to each event once", func(r *rig) {
		h := r.host()
		c, d, n := h.counter(), h.counter(), h.idle()
		r.must(n.ep.BindCounter(c, fabric.CountSend|fabric.CountRead))
		if err := n.ep.BindCounter(d, fabric.CountRead|fabric.CountWrite); err == nil {
			r.Error("two counters for reads")
		}
		if err := n.ep.BindCounter(nil, fabric.CountWrite); err == nil {
			r.Error("no counter was bound")
		}
		r.must(n.ep.BindCounter(d, fabric.CountRecv))
	}},
	{"a counter with an unknown unit does not open", func(r *rig) {
		if _, err := r.host().dom.Counter(99); err == nil {
			r.Error("a counter of unit 99")
		}
	}},
}

// counts waits until c counted want, and fails the case if it counted more, or failures.
func (r *rig) counts(c fabric.Counter, want uint64) {
	r.Helper()
	r.must(c.Wait(r.ctx, want))
	if got, errs := c.Read(), c.ReadErr(); got != want || errs != 0 {
		r.Fatalf("counted %d and %d failures, want %d and none", got, errs, want)
	}
}

// soon is a context that ends before the case does: what it waits for does not come.
func (r *rig) soon() context.Context {
	ctx, cancel := context.WithTimeout(r.ctx, 10*time.Millisecond)
	r.Cleanup(cancel)
	return ctx
}

func countEach(r *rig) {
	events := []fabric.CountEvents{fabric.CountSend, fabric.CountRecv, fabric.CountRead, fabric.CountWrite}
	counted := func(h *host) (*node, map[fabric.CountEvents]fabric.Counter) {
		cs := make(map[fabric.CountEvents]fabric.Counter)
		for _, e := range events {
			cs[e] = h.counter()
		}
		return h.node(shape{bind: func(n *node) {
			for e, c := range cs {
				n.must(n.ep.BindCounter(c, e))
			}
		}}), cs
	}
	a, ca := counted(r.host())
	b, cb := counted(r.host())
	r.join(a, b)
	src, far := r.patterned(8, 1), r.alloc(8)
	to := a.imports(b.reg(far, bothRights).Raw())
	wantA, wantB := map[fabric.CountEvents]uint64{}, map[fabric.CountEvents]uint64{}
	ops := []fabric.Op{{Kind: fabric.OpSend, Seg: src.seg()}, {Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8)},
		{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, RSeg: to.at(0, 0)}, {Kind: fabric.OpRead, Seg: src.seg(), RSeg: to.at(0, 8)}}
	ops = append(ops, someAtomics(r, a, src, to)...)
	for i, op := range ops {
		for range i + 1 {
			if op.Kind == fabric.OpSend {
				b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: far.seg()})
				wantB[fabric.CountRecv]++
			}
			a.do(op)
			wantA[fabric.CountEventOf(op.Kind)]++
		}
	}
	for _, e := range events {
		r.counts(ca[e], wantA[e])
		r.counts(cb[e], wantB[e])
	}
}

func countFailures(r *rig) {
	ha := r.host()
	c := ha.counter()
	a := ha.node(shape{selective: true, bind: func(n *node) { n.must(n.ep.BindCounter(c, fabric.CountRead)) }})
	b := r.host().node(shape{})
	r.join(a, b)
	local, far := r.alloc(8), r.alloc(8)
	to := a.imports(b.reg(far, bothRights).Raw())
	read := fabric.Op{Kind: fabric.OpRead, Seg: local.seg(), RSeg: to.at(0, 8)}
	a.submit(read, read)
	r.counts(c, 2)
	done := make(chan error, 1)
	go func() { done <- c.Wait(r.ctx, 100) }()
	read.RSeg = to.at(1, 8)
	a.refused(read, r.denial(fabric.ErrRange)...)
	r.want("the wait", <-done, fabric.ErrAvail)
	if got := c.ReadErr(); got != 1 {
		r.Fatalf("%d failures, want 1", got)
	}
	r.must(c.Wait(r.ctx, 2)) // the failure is known now
	r.want("wait for more", c.Wait(r.soon(), 3), context.DeadlineExceeded)
	if got := c.Read(); got != 2 {
		r.Errorf("a failure was counted as a success: %d", got)
	}
}

func countWaits(r *rig) {
	c := r.host().counter()
	r.must(c.Wait(r.ctx, 0))
	r.want("nothing comes", c.Wait(r.soon(), 1), context.DeadlineExceeded)
	r.must(c.Add(5))
	for _, threshold := range []uint64{0, 1, 5} {
		r.must(c.Wait(r.ctx, threshold))
	}
	r.want("one more than there are", c.Wait(r.soon(), 6), context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	r.want("canceled before", c.Wait(ctx, 6), context.Canceled)
	done := make(chan error, 2)
	for range cap(done) {
		go func() { done <- c.Wait(r.ctx, 6) }()
	}
	time.Sleep(5 * time.Millisecond)
	r.must(c.Close())
	for range cap(done) {
		r.want("closed under it", <-done, fabric.ErrClosed)
	}
}

// countWakes has many waiters, each with its threshold, and ops that end one by one.
func countWakes(r *rig) {
	const count = 200
	ha := r.host()
	c := ha.counter()
	a := ha.node(shape{bind: func(n *node) { n.must(n.ep.BindCounter(c, fabric.CountWrite)) }})
	b := r.host().node(shape{})
	r.join(a, b)
	to := a.imports(b.reg(r.alloc(8), bothRights).Raw())
	src := r.patterned(8, 1)
	var wg sync.WaitGroup
	for i := range uint64(count) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := c.Wait(r.ctx, i+1); err != nil || c.Read() < i+1 {
				r.Errorf("wait for %d: %v at %d", i+1, err, c.Read())
			}
		}()
		a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8), Ctx: i})
	}
	wg.Wait()
	r.counts(c, count)
}

func countSet(r *rig) {
	c := r.host().counter()
	r.must(c.Add(5))
	r.must(c.Set(2))
	r.must(c.Add(1))
	r.counts(c, 3)
	done := make(chan error, 1)
	go func() { done <- c.Wait(r.ctx, 1000) }()
	r.must(c.Set(1000))
	r.must(<-done)
	go func() { done <- c.Wait(r.ctx, 1001) }()
	r.must(c.AddErr(2))
	r.want("wait", <-done, fabric.ErrAvail)
	if n := c.ReadErr(); n != 2 {
		r.Errorf("%d failures, want 2", n)
	}
	r.must(c.SetErr(0))
	if n := c.ReadErr(); n != 0 {
		r.Errorf("%d failures, want none", n)
	}
}

func countBytes(r *rig) {
	ha := r.host()
	c, err := ha.dom.Counter(fabric.CountBytes)
	if err != nil {
		r.want("open", err, fabric.ErrNoSys)
		return
	}
	r.Cleanup(func() { r.closed(c) })
	a := ha.node(shape{bind: func(n *node) { n.must(n.ep.BindCounter(c, fabric.CountAll)) }})
	b := r.host().node(shape{})
	r.join(a, b)
	src, far := r.patterned(1000, 1), r.alloc(1000)
	to := a.imports(b.reg(far, bothRights).Raw())
	a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 1000)})
	a.do(fabric.Op{Kind: fabric.OpRead, Seg: src.at(0, 300).seg(), RSeg: to.at(0, 300)})
	r.counts(c, 1300)
	a.submit(fabric.Op{Kind: fabric.OpRecv, Seg: src.seg(), Ctx: 1})
	b.do(fabric.Op{Kind: fabric.OpSend, Seg: far.at(0, 50).seg()})
	a.ok(1) // of 50 bytes, in a space of 1000
	r.counts(c, 1350)
	a.refused(fabric.Op{Kind: fabric.OpRead, Seg: src.seg(), RSeg: to.at(1, 1000)}, r.denial(fabric.ErrRange)...)
	r.want("after a failure", c.Wait(r.ctx, 1<<40), fabric.ErrAvail)
	if n := c.ReadErr(); n != 1 {
		r.Errorf("%d failures, want 1", n)
	}
}
