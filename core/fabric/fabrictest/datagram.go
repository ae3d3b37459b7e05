// SPDX-License-Identifier: MIT

package fabrictest

import (
	"slices"
	"sync"

	"mori/core/fabric"
)

var datagramCases = []testCase{
	{"a receive reports its sender", func(r *rig) {
		b := r.host().node(shape{})
		known, unknown := r.host().node(shape{}), r.host().node(shape{})
		number := b.insert(known.name)
		src, dst := r.patterned(8, 1), r.alloc(8)
		to := r.reached(known, b, dst)
		r.reached(unknown, b, dst)
		for round := range 3 {
			for _, c := range []struct {
				from *node
				src  fabric.AVAddr
			}{{known, number}, {unknown, 0}} {
				b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 1})
				c.from.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 2})
				if got := b.ok(1); got.Src != c.src && r.info.Caps&fabric.CapSource != 0 {
					r.Fatalf("round %d: the source is %d, want %d", round, got.Src, c.src)
				}
			}
		}
		known.submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.seg(), RSeg: to.at(0, 8), Data: 4})
		if got := b.ok(0); got.Kind != fabric.OpRemoteWrite || got.Data != 4 || got.Src != number && r.info.Caps&fabric.CapSource != 0 {
			r.Fatalf("told as %+v, want source %d", got, number)
		}
		known.ok(0)
	}},
	{"one receiver takes the messages of eight senders, each in order", manySenders},
	{"four endpoints all to all, messages and RMA", allToAll},
	{"two endpoints send to each other at once", glare},
	{"an endpoint is its own peer", func(r *rig) {
		n := r.host().node(shape{})
		n.dest = n.insert(n.name)
		src, dst := r.patterned(100000, 1), r.alloc(100000)
		for i := range uint64(5) {
			clear(dst.b)
			n.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 2 * i}, fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 2*i + 1})
			if x, y := n.read(), n.read(); x.Err != 0 || y.Err != 0 || x.Ctx+y.Ctx != 4*i+1 {
				r.Fatalf("round %d: %v and %v", i, &x, &y)
			}
			r.has(dst, 1, 0)
		}
		stillWorks(r, n, n)
	}},
	{"two endpoints with one address vector", func(r *rig) {
		h, b := r.host(), r.host().node(shape{})
		av := h.av(4)
		x, y := h.node(shape{av: av}), h.node(shape{av: av})
		r.join(x, b)
		y.dest = x.dest
		stillWorks(r, x, b)
		stillWorks(r, y, b)
		x.dest = x.insert(y.name) // and so y knows itself
		stillWorks(r, x, y)
		r.must(x.ep.Close())
		stillWorks(r, y, b)
	}},
	{"only one side needs to know the other for RMA", func(r *rig) {
		a, b := r.host().node(shape{}), r.host().node(shape{})
		a.dest = a.insert(b.name)
		stillWorks(r, a, b)
	}},
	{"late receives take waiting messages", func(r *rig) {
		b := r.host().node(shape{})
		src := r.patterned(5000, 1)
		var senders []*node
		for range 3 {
			a := r.host().node(shape{})
			r.join(a, b)
			for i := range uint64(5) {
				a.submit(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.at(0, 1000*int(i)).seg(), Data: i, Ctx: i})
			}
			senders = append(senders, a)
		}
		var total uint64
		for i := range uint64(15) {
			dst := r.alloc(5000)
			b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: i})
			c := b.ok(i)
			if c.Len != 1000*c.Data {
				r.Fatalf("receive %d: %+v", i, c)
			}
			r.has(dst.at(0, int(c.Len)), 1, 0)
			total += c.Data
		}
		if total != 3*(0+1+2+3+4) {
			r.Errorf("the messages' data add up to %d", total)
		}
		for _, a := range senders {
			if left := tally(a, 5, caseDeadline/4); left != 0 {
				r.Errorf("%d sends did not end", left)
			}
		}
	}},
}

// reached makes b a's dest, and memory of b known to a.
func (r *rig) reached(a, b *node, m memory) target {
	r.Helper()
	a.dest = a.insert(b.name)
	return a.imports(b.reg(m, bothRights).Raw())
}

// manySenders gives each message its sender and its number as data.
func manySenders(r *rig) {
	const senders, count, posted, size = 8, 200, 16, 64
	b := r.host().node(shape{})
	var wg sync.WaitGroup
	for s := range uint64(senders) {
		a := r.host().node(shape{})
		a.dest = a.insert(b.name)
		src := r.patterned(size, s)
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := a.pipeline(count, func(i int) fabric.Op {
				return fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.at(0, i%size).seg(), Data: s<<32 | uint64(i)}
			})
			if err != nil {
				r.Errorf("sender %d: %v", s, err)
			}
		}()
	}
	bufs := r.alloc(posted * size)
	post := func(i uint64) {
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.at(int(i)*size, size).seg(), Ctx: i})
	}
	for i := range uint64(posted) {
		post(i)
	}
	var next [senders]uint64
	for range senders * count {
		e := b.read()
		s, i := e.Data>>32, e.Data&(1<<32-1)
		if e.Err != 0 || s >= senders || next[s] != i || e.Len != i%size {
			r.Fatalf("got %+v of sender %d, whose next is %d", e, s, next[min(s, senders-1)])
		}
		next[s]++
		r.has(bufs.at(int(e.Ctx)*size, int(e.Len)), s, 0)
		post(e.Ctx)
	}
	wg.Wait()
}

// allToAll gives each of four endpoints a row in each other's memory.
func allToAll(r *rig) {
	const nodes, rounds, size = 4, 20, 3000
	var all []*node
	var rows []memory
	for range nodes {
		all = append(all, r.host().node(shape{}))
		rows = append(rows, r.alloc(nodes*size))
	}
	for i, a := range all {
		for j, b := range all {
			to := r.reached(a, b, rows[j])
			src := r.patterned(size, uint64(10*i+j))
			for k := range uint64(rounds) {
				b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.alloc(8).seg(), Ctx: 1000})
				a.submit(
					fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(uint64(i*size), size), Ctx: k},
					fabric.Op{Kind: fabric.OpSend, Seg: src.at(0, 8).seg(), Ctx: k})
			}
		}
	}
	for j, b := range all {
		seen := make(map[uint64]int)
		for range nodes * rounds * 3 {
			e := b.read()
			if e.Err != 0 {
				r.Fatal(&e)
			}
			seen[e.Ctx]++
		}
		if seen[1000] != nodes*rounds || seen[0] != 2*nodes {
			r.Fatalf("endpoint %d: %v", j, seen)
		}
		b.silent()
	}
	for j := range all {
		for i := range all {
			r.has(rows[j].at(i*size, size), uint64(10*i+j), 0)
		}
	}
}

// glare makes both sides need a connection at once.
func glare(r *rig) {
	for range 20 {
		a, b := r.pair(shape{})
		src, bufs := r.patterned(100, 3), []memory{r.alloc(100), r.alloc(100)}
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i, n := range []*node{a, b} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				<-start
				_, errRecv := n.try(fabric.Op{Kind: fabric.OpRecv, Seg: bufs[i].seg(), Ctx: 1})
				_, errSend := n.try(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 2})
				if errRecv != nil || errSend != nil {
					r.Errorf("receive: %v; send: %v", errRecv, errSend)
				}
			}()
		}
		close(start)
		wg.Wait()
		for i, n := range []*node{a, b} {
			x, y := n.read(), n.read()
			if ctxs := []uint64{x.Ctx, y.Ctx}; x.Err != 0 || y.Err != 0 || !slices.Contains(ctxs, 1) || !slices.Contains(ctxs, 2) {
				r.Fatalf("%v and %v", &x, &y)
			}
			r.has(bufs[i], 3, 0)
			n.silent()
		}
		r.must(a.ep.Close())
		r.must(b.ep.Close())
	}
}
