// SPDX-License-Identifier: MIT

package transfer

import (
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// ScaleCases are the cases of many endpoints.
var ScaleCases = []rig.Case{
	{Name: "64 endpoints of one domain share one queue", Run: ring},
	{Name: "many goroutines submit on one endpoint", Run: submitters},
	{Name: "a queue that was full takes ops again", Run: func(r *rig.Rig) {
		a, b := r.PairOf(rig.Shape{CQSize: 8}, rig.Shape{})
		to := a.Imports(b.Reg(r.Alloc(8), rig.BothRights).Raw())
		src := r.Patterned(8, 1)
		ended := uint64(0)
		dst := make([]fabric.Completion, 8)
		for submitted := uint64(0); ended < 5000; {
			for submitted < 5000 {
				k, err := a.Try(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8), Ctx: submitted})
				if submitted += uint64(k); k == 0 {
					r.Want("full", err, fabric.ErrAgain)
					break
				}
			}
			k, err := a.CQ.Wait(r.Ctx, dst)
			r.Must(err)
			ended += uint64(k)
		}
		a.Silent()
	}},
	{Name: "many receives wait, and each gets its message", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{CQSize: r.Info.Limits.RxSize + 16})
		count := min(r.Info.Limits.RxSize, 1024)
		bufs, src := r.Alloc(8*count), r.Alloc(8*count)
		for i := range count {
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.At(8*i, 8).Seg(), Ctx: uint64(i)})
		}
		for i := range count {
			src.At(8*i, 8).Fill(uint64(i))
			r.Must(a.Send(fabric.Op{Kind: fabric.OpSend, Seg: src.At(8*i, 8).Seg()}))
		}
		for i := range count {
			b.OK(uint64(i))
			r.Has(bufs.At(8*i, 8), uint64(i), 0)
		}
	}},
}

// ring makes each of 64 endpoints send and write to the next.
func ring(r *rig.Rig) {
	const count, size = 64, 512
	h := r.Host()
	s := rig.Shape{CQ: h.CQ(count * 8)}
	if r.RDM() {
		s.AV = h.AV(count)
	}
	var all []*rig.Node
	for range count {
		all = append(all, h.Node(s))
	}
	far, src, bufs := r.Alloc(count*size), r.Alloc(count*size), r.Alloc(count*size)
	to := h.Imports(h.Reg(far, rig.BothRights).Raw())
	var from, till []*rig.Node // a connection for each pair of neighbours
	for i := range all {
		next := all[(i+1)%count]
		if r.RDM() {
			all[i].Dest = all[i].Insert(next.Address)
		} else if i%2 == 0 {
			r.Join(all[i], next)
		} else {
			continue
		}
		from, till = append(from, all[i]), append(till, next)
	}
	seen := make(map[uint64]bool)
	ended := func() {
		e := all[0].Read()
		if e.Err != 0 || seen[e.Ctx] {
			r.Fatalf("op %d, again or failed: %v", e.Ctx, &e)
		}
		seen[e.Ctx] = true
	}
	for i := range from {
		m := src.At(i*size, size)
		m.Fill(uint64(i))
		till[i].Submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.At(i*size, size).Seg(), Ctx: uint64(3 * i)})
		from[i].Submit(fabric.Op{Kind: fabric.OpSend, Seg: m.Seg(), Ctx: uint64(3*i + 1)},
			fabric.Op{Kind: fabric.OpWrite, Seg: m.Seg(), RSeg: to.At(uint64(i*size), size), Ctx: uint64(3*i + 2)})
		for i >= dials && len(seen) < 3*(i-dials) {
			ended()
		}
	}
	for len(seen) < 3*len(from) {
		ended()
	}
	all[0].Silent()
	for i := range from {
		r.Has(far.At(i*size, size), uint64(i), 0)
		r.Has(bufs.At(i*size, size), uint64(i), 0)
	}
}

// submitters write words of their own, with batches, while one goroutine reads the queue.
func submitters(r *rig.Rig) {
	const workers, rounds, batch = 16, 50, 4
	a, b := r.Pair(rig.Shape{CQSize: 128})
	far, src := r.Alloc(workers*8), r.Alloc(workers*8)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	var wg sync.WaitGroup
	for w := range workers {
		src.At(8*w, 8).Fill(uint64(w))
		wg.Add(1)
		go func() {
			defer wg.Done()
			ops := make([]fabric.Op, batch)
			for round := range rounds {
				for i := range ops {
					ops[i] = fabric.Op{Kind: fabric.OpWrite, Seg: src.At(8*w, 8).Seg(), RSeg: to.At(uint64(8*w), 8), Ctx: uint64((w*rounds+round)*batch + i)}
				}
				for todo := ops; len(todo) > 0; {
					k, err := a.Try(todo...)
					todo = todo[k:]
					if err != nil && (fabric.ErrnoOf(err) != fabric.ErrAgain || r.Ctx.Err() != nil) {
						r.Errorf("worker %d: %v", w, err)
						return
					}
					if err != nil {
						time.Sleep(20 * time.Microsecond)
					}
				}
			}
		}()
	}
	left := rig.Tally(a, workers*rounds*batch, rig.CaseDeadline/4)
	wg.Wait()
	if left != 0 {
		r.Fatalf("%d ops did not end", left)
	}
	for w := range workers {
		r.Has(far.At(8*w, 8), uint64(w), 0)
	}
}
