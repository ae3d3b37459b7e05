// SPDX-License-Identifier: MIT

package ending

import (
	"slices"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// DatagramCases are the cases of datagrams.
var DatagramCases = []rig.Case{
	{Name: "a receive reports its sender", Run: func(r *rig.Rig) {
		b := r.Host().Node(rig.Shape{})
		known, unknown := r.Host().Node(rig.Shape{}), r.Host().Node(rig.Shape{})
		number := b.Insert(known.Address)
		src, dst := r.Patterned(8, 1), r.Alloc(8)
		to := reached(r, known, b, dst)
		reached(r, unknown, b, dst)
		for round := range 3 {
			for _, c := range []struct {
				from *rig.Node
				src  fabric.AVAddr
			}{{known, number}, {unknown, 0}} {
				b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 1})
				c.from.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 2})
				if got := b.OK(1); got.Src != c.src && r.Info.Caps&fabric.CapSource != 0 {
					r.Fatalf("round %d: the source is %d, want %d", round, got.Src, c.src)
				}
			}
		}
		known.Submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.Seg(), RSeg: to.At(0, 8), Data: 4})
		if got := b.OK(0); got.Kind != fabric.OpRemoteWrite || got.Data != 4 || got.Src != number && r.Info.Caps&fabric.CapSource != 0 {
			r.Fatalf("reported as %+v, want source %d", got, number)
		}
		known.OK(0)
	}},
	{Name: "one receiver takes the messages of eight senders, each in order", Run: manySenders},
	{Name: "four endpoints all to all, messages and RMA", Run: allToAll},
	{Name: "two endpoints send to each other at once", Run: glare},
	{Name: "an endpoint is its own peer", Run: func(r *rig.Rig) {
		n := r.Host().Node(rig.Shape{})
		n.Dest = n.Insert(n.Address)
		src, dst := r.Patterned(100000, 1), r.Alloc(100000)
		for i := range uint64(5) {
			clear(dst.B)
			n.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 2 * i}, fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 2*i + 1})
			if x, y := n.Read(), n.Read(); x.Err != 0 || y.Err != 0 || x.Ctx+y.Ctx != 4*i+1 {
				r.Fatalf("round %d: %v and %v", i, &x, &y)
			}
			r.Has(dst, 1, 0)
		}
		rig.StillWorks(r, n, n)
	}},
	{Name: "two endpoints with one address vector", Run: func(r *rig.Rig) {
		h, b := r.Host(), r.Host().Node(rig.Shape{})
		av := h.AV(4)
		x, y := h.Node(rig.Shape{AV: av}), h.Node(rig.Shape{AV: av})
		r.Join(x, b)
		y.Dest = x.Dest
		rig.StillWorks(r, x, b)
		rig.StillWorks(r, y, b)
		x.Dest = x.Insert(y.Address) // and so y knows itself
		rig.StillWorks(r, x, y)
		r.Must(x.EP.Close())
		rig.StillWorks(r, y, b)
	}},
	{Name: "only one side needs to know the other for RMA", Run: func(r *rig.Rig) {
		a, b := r.Host().Node(rig.Shape{}), r.Host().Node(rig.Shape{})
		a.Dest = a.Insert(b.Address)
		rig.StillWorks(r, a, b)
	}},
	{Name: "late receives take waiting messages", Run: func(r *rig.Rig) {
		b := r.Host().Node(rig.Shape{})
		src := r.Patterned(5000, 1)
		var senders []*rig.Node
		for range 3 {
			a := r.Host().Node(rig.Shape{})
			r.Join(a, b)
			for i := range uint64(5) {
				a.Submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.At(0, 1000*int(i)).Seg(), Data: i, Ctx: i})
			}
			senders = append(senders, a)
		}
		var total uint64
		for i := range uint64(15) {
			dst := r.Alloc(5000)
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: i})
			c := b.OK(i)
			if c.Len != 1000*c.Data {
				r.Fatalf("receive %d: %+v", i, c)
			}
			r.Has(dst.At(0, int(c.Len)), 1, 0)
			total += c.Data
		}
		if total != 3*(0+1+2+3+4) {
			r.Errorf("the messages' data add up to %d", total)
		}
		for _, a := range senders {
			if left := rig.Tally(a, 5, rig.CaseDeadline/4); left != 0 {
				r.Errorf("%d sends did not end", left)
			}
		}
	}},
}

// reached makes b a's dest, and memory of b known to a.
func reached(r *rig.Rig, a, b *rig.Node, m rig.Buffer) rig.Target {
	r.Helper()
	a.Dest = a.Insert(b.Address)
	return a.Imports(b.Reg(m, rig.BothRights).Raw())
}

// manySenders gives each message its sender and its number as data.
func manySenders(r *rig.Rig) {
	const senders, count, posted, size = 8, 200, 16, 64
	b := r.Host().Node(rig.Shape{})
	var wg sync.WaitGroup
	for s := range uint64(senders) {
		a := r.Host().Node(rig.Shape{})
		a.Dest = a.Insert(b.Address)
		src := r.Patterned(size, s)
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := a.Pipeline(count, func(i int) fabric.Op {
				return fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.At(0, i%size).Seg(), Data: s<<32 | uint64(i)}
			})
			if err != nil {
				r.Errorf("sender %d: %v", s, err)
			}
		}()
	}
	bufs := r.Alloc(posted * size)
	post := func(i uint64) {
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.At(int(i)*size, size).Seg(), Ctx: i})
	}
	for i := range uint64(posted) {
		post(i)
	}
	var next [senders]uint64
	for range senders * count {
		e := b.Read()
		s, i := e.Data>>32, e.Data&(1<<32-1)
		if e.Err != 0 || s >= senders || next[s] != i || e.Len != i%size {
			r.Fatalf("got %+v of sender %d, whose next is %d", e, s, next[min(s, senders-1)])
		}
		next[s]++
		r.Has(bufs.At(int(e.Ctx)*size, int(e.Len)), s, 0)
		post(e.Ctx)
	}
	wg.Wait()
}

// allToAll gives each of four endpoints a row in each other's memory.
func allToAll(r *rig.Rig) {
	const nodes, rounds, size = 4, 20, 3000
	var all []*rig.Node
	var rows []rig.Buffer
	for range nodes {
		all = append(all, r.Host().Node(rig.Shape{}))
		rows = append(rows, r.Alloc(nodes*size))
	}
	for i, a := range all {
		for j, b := range all {
			to := reached(r, a, b, rows[j])
			src := r.Patterned(size, uint64(10*i+j))
			for k := range uint64(rounds) {
				b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.Alloc(8).Seg(), Ctx: 1000})
				a.Submit(
					fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(uint64(i*size), size), Ctx: k},
					fabric.Op{Kind: fabric.OpSend, Seg: src.At(0, 8).Seg(), Ctx: k})
			}
		}
	}
	for j, b := range all {
		seen := make(map[uint64]int)
		for range nodes * rounds * 3 {
			e := b.Read()
			if e.Err != 0 {
				r.Fatal(&e)
			}
			seen[e.Ctx]++
		}
		if seen[1000] != nodes*rounds || seen[0] != 2*nodes {
			r.Fatalf("endpoint %d: %v", j, seen)
		}
		b.Silent()
	}
	for j := range all {
		for i := range all {
			r.Has(rows[j].At(i*size, size), uint64(10*i+j), 0)
		}
	}
}

// glare makes both sides need a connection at once.
func glare(r *rig.Rig) {
	for range 20 {
		a, b := r.Pair(rig.Shape{})
		src, bufs := r.Patterned(100, 3), []rig.Buffer{r.Alloc(100), r.Alloc(100)}
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i, n := range []*rig.Node{a, b} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				<-start
				_, errRecv := n.Try(fabric.Op{Kind: fabric.OpRecv, Seg: bufs[i].Seg(), Ctx: 1})
				_, errSend := n.Try(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 2})
				if errRecv != nil || errSend != nil {
					r.Errorf("receive: %v; send: %v", errRecv, errSend)
				}
			}()
		}
		close(start)
		wg.Wait()
		for i, n := range []*rig.Node{a, b} {
			x, y := n.Read(), n.Read()
			if ctxs := []uint64{x.Ctx, y.Ctx}; x.Err != 0 || y.Err != 0 || !slices.Contains(ctxs, 1) || !slices.Contains(ctxs, 2) {
				r.Fatalf("%v and %v", &x, &y)
			}
			r.Has(bufs[i], 3, 0)
			n.Silent()
		}
		r.Must(a.EP.Close())
		r.Must(b.EP.Close())
	}
}
