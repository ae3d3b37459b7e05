// SPDX-License-Identifier: MIT

package queues

import (
	"context"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/atomics"
	"mori/core/fabric/fabrictest/internal/rig"
)

// CounterCases are the cases of counters.
var CounterCases = []rig.Case{
	{Name: "each event is counted by its counter and no other", Run: countEach},
	{Name: "one counter for all events of many endpoints", Run: func(r *rig.Rig) {
		const nodes, rounds = 4, 10
		ha, hb := r.Host(), r.Host()
		c := ha.Counter()
		count := func(n *rig.Node) { n.Must(n.EP.BindCounter(c, fabric.CountAll)) }
		src, far := r.Patterned(8, 1), r.Alloc(8)
		to := ha.Imports(hb.Reg(far, rig.BothRights).Raw())
		for range nodes {
			a := ha.Node(rig.Shape{Bind: count})
			r.Join(a, hb.Node(rig.Shape{}))
			for i := range uint64(rounds) {
				a.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8), Ctx: i})
			}
		}
		counts(r, c, nodes*rounds)
	}},
	{Name: "ops that report no success count, too", Run: func(r *rig.Rig) {
		ha := r.Host()
		c := ha.Counter()
		a := ha.Node(rig.Shape{Selective: true, Bind: func(n *rig.Node) { n.Must(n.EP.BindCounter(c, fabric.CountWrite|fabric.CountSend)) }})
		b := r.Host().Node(rig.Shape{})
		r.Join(a, b)
		src, far := r.Patterned(8, 1), r.Alloc(8)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		write := fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8)}
		want := uint64(0)
		for range 20 {
			b.Submit(fabric.Op{Kind: fabric.OpRecv})
			a.Submit(write, fabric.Op{Kind: fabric.OpSend})
			want += 2
			if r.Info.Limits.MaxInject >= 8 {
				write.Flags ^= fabric.OpInject
			}
		}
		counts(r, c, want)
		a.Silent()
	}},
	{Name: "failures are counted apart", Run: countFailures},
	{Name: "a wait ends at its threshold, with its context, and with the counter", Run: countWaits},
	{Name: "a waiter wakes at its threshold", Run: countWakes},
	{Name: "a count is set and added to", Run: countSet},
	{Name: "a counter of bytes counts bytes or is refused", Run: countBytes},
	{Name: "a counter is bound to each event once", Run: func(r *rig.Rig) {
		h := r.Host()
		c, d, n := h.Counter(), h.Counter(), h.Idle()
		r.Must(n.EP.BindCounter(c, fabric.CountSend|fabric.CountRead))
		if err := n.EP.BindCounter(d, fabric.CountRead|fabric.CountWrite); err == nil {
			r.Error("two counters for reads")
		}
		if err := n.EP.BindCounter(nil, fabric.CountWrite); err == nil {
			r.Error("no counter was bound")
		}
		r.Must(n.EP.BindCounter(d, fabric.CountRecv))
	}},
	{Name: "a counter with an unknown unit does not open", Run: func(r *rig.Rig) {
		if _, err := r.Host().Dom.Counter(99); err == nil {
			r.Error("a counter of unit 99")
		}
	}},
}

// counts waits until c counted want, and fails the case if it counted more, or failures.
func counts(r *rig.Rig, c fabric.Counter, want uint64) {
	r.Helper()
	r.Must(c.Wait(r.Ctx, want))
	if got, errs := c.Read(), c.ReadErr(); got != want || errs != 0 {
		r.Fatalf("counted %d and %d failures, want %d and none", got, errs, want)
	}
}

// soon is a context that ends before the case does: what it waits for does not come.
func soon(r *rig.Rig) context.Context {
	ctx, cancel := context.WithTimeout(r.Ctx, 10*time.Millisecond)
	r.Cleanup(cancel)
	return ctx
}

func countEach(r *rig.Rig) {
	events := []fabric.CountEvents{fabric.CountSend, fabric.CountRecv, fabric.CountRead, fabric.CountWrite}
	counted := func(h *rig.Host) (*rig.Node, map[fabric.CountEvents]fabric.Counter) {
		cs := make(map[fabric.CountEvents]fabric.Counter)
		for _, e := range events {
			cs[e] = h.Counter()
		}
		return h.Node(rig.Shape{Bind: func(n *rig.Node) {
			for e, c := range cs {
				n.Must(n.EP.BindCounter(c, e))
			}
		}}), cs
	}
	a, ca := counted(r.Host())
	b, cb := counted(r.Host())
	r.Join(a, b)
	src, far := r.Patterned(8, 1), r.Alloc(8)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	wantA, wantB := map[fabric.CountEvents]uint64{}, map[fabric.CountEvents]uint64{}
	ops := []fabric.Op{{Kind: fabric.OpSend, Seg: src.Seg()}, {Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8)},
		{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, RSeg: to.At(0, 0)}, {Kind: fabric.OpRead, Seg: src.Seg(), RSeg: to.At(0, 8)}}
	ops = append(ops, atomics.SomeAtomics(r, a, src, to)...)
	for i, op := range ops {
		for range i + 1 {
			if op.Kind == fabric.OpSend {
				b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: far.Seg()})
				wantB[fabric.CountRecv]++
			}
			a.Do(op)
			wantA[fabric.CountEventOf(op.Kind)]++
		}
	}
	for _, e := range events {
		counts(r, ca[e], wantA[e])
		counts(r, cb[e], wantB[e])
	}
}

func countFailures(r *rig.Rig) {
	ha := r.Host()
	c := ha.Counter()
	a := ha.Node(rig.Shape{Selective: true, Bind: func(n *rig.Node) { n.Must(n.EP.BindCounter(c, fabric.CountRead)) }})
	b := r.Host().Node(rig.Shape{})
	r.Join(a, b)
	local, far := r.Alloc(8), r.Alloc(8)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	read := fabric.Op{Kind: fabric.OpRead, Seg: local.Seg(), RSeg: to.At(0, 8)}
	a.Submit(read, read)
	counts(r, c, 2)
	done := make(chan error, 1)
	go func() { done <- c.Wait(r.Ctx, 100) }()
	read.RSeg = to.At(1, 8)
	a.Refused(read, r.Denial(fabric.ErrRange)...)
	r.Want("the wait", <-done, fabric.ErrAvail)
	if got := c.ReadErr(); got != 1 {
		r.Fatalf("%d failures, want 1", got)
	}
	r.Must(c.Wait(r.Ctx, 2)) // the failure is known now
	r.Want("wait for more", c.Wait(soon(r), 3), context.DeadlineExceeded)
	if got := c.Read(); got != 2 {
		r.Errorf("a failure was counted as a success: %d", got)
	}
}

func countWaits(r *rig.Rig) {
	c := r.Host().Counter()
	r.Must(c.Wait(r.Ctx, 0))
	r.Want("nothing comes", c.Wait(soon(r), 1), context.DeadlineExceeded)
	r.Must(c.Add(5))
	for _, threshold := range []uint64{0, 1, 5} {
		r.Must(c.Wait(r.Ctx, threshold))
	}
	r.Want("one more than there are", c.Wait(soon(r), 6), context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(r.Ctx)
	cancel()
	r.Want("canceled before", c.Wait(ctx, 6), context.Canceled)
	done := make(chan error, 2)
	for range cap(done) {
		go func() { done <- c.Wait(r.Ctx, 6) }()
	}
	time.Sleep(5 * time.Millisecond)
	r.Must(c.Close())
	for range cap(done) {
		r.Want("closed under it", <-done, fabric.ErrClosed)
	}
}

// countWakes has many waiters, each with its threshold, and ops that end one by one.
func countWakes(r *rig.Rig) {
	const count = 200
	ha := r.Host()
	c := ha.Counter()
	a := ha.Node(rig.Shape{Bind: func(n *rig.Node) { n.Must(n.EP.BindCounter(c, fabric.CountWrite)) }})
	b := r.Host().Node(rig.Shape{})
	r.Join(a, b)
	to := a.Imports(b.Reg(r.Alloc(8), rig.BothRights).Raw())
	src := r.Patterned(8, 1)
	var wg sync.WaitGroup
	for i := range uint64(count) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := c.Wait(r.Ctx, i+1); err != nil || c.Read() < i+1 {
				r.Errorf("wait for %d: %v at %d", i+1, err, c.Read())
			}
		}()
		a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8), Ctx: i})
	}
	wg.Wait()
	counts(r, c, count)
}

func countSet(r *rig.Rig) {
	c := r.Host().Counter()
	r.Must(c.Add(5))
	r.Must(c.Set(2))
	r.Must(c.Add(1))
	counts(r, c, 3)
	done := make(chan error, 1)
	go func() { done <- c.Wait(r.Ctx, 1000) }()
	r.Must(c.Set(1000))
	r.Must(<-done)
	go func() { done <- c.Wait(r.Ctx, 1001) }()
	r.Must(c.AddErr(2))
	r.Want("wait", <-done, fabric.ErrAvail)
	if n := c.ReadErr(); n != 2 {
		r.Errorf("%d failures, want 2", n)
	}
	r.Must(c.SetErr(0))
	if n := c.ReadErr(); n != 0 {
		r.Errorf("%d failures, want none", n)
	}
}

func countBytes(r *rig.Rig) {
	ha := r.Host()
	c, err := ha.Dom.Counter(fabric.CountBytes)
	if err != nil {
		r.Want("open", err, fabric.ErrNoSys)
		return
	}
	r.Cleanup(func() { r.Closed(c) })
	a := ha.Node(rig.Shape{Bind: func(n *rig.Node) { n.Must(n.EP.BindCounter(c, fabric.CountAll)) }})
	b := r.Host().Node(rig.Shape{})
	r.Join(a, b)
	src, far := r.Patterned(1000, 1), r.Alloc(1000)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 1000)})
	a.Do(fabric.Op{Kind: fabric.OpRead, Seg: src.At(0, 300).Seg(), RSeg: to.At(0, 300)})
	counts(r, c, 1300)
	a.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: src.Seg(), Ctx: 1})
	b.Do(fabric.Op{Kind: fabric.OpSend, Seg: far.At(0, 50).Seg()})
	a.OK(1) // of 50 bytes, in a space of 1000
	counts(r, c, 1350)
	a.Refused(fabric.Op{Kind: fabric.OpRead, Seg: src.Seg(), RSeg: to.At(1, 1000)}, r.Denial(fabric.ErrRange)...)
	r.Want("after a failure", c.Wait(r.Ctx, 1<<40), fabric.ErrAvail)
	if n := c.ReadErr(); n != 1 {
		r.Errorf("%d failures, want 1", n)
	}
}
