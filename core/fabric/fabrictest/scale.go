// SPDX-License-Identifier: MIT

package fabrictest

import (
	"sync"
	"time"

	"mori/core/fabric"
)

var scaleCases = []testCase{
	{"64 endpoints of one domain share one queue", ring},
	{"many goroutines submit on one endpoint", submitters},
	{"a queue that was full takes ops again", func(r *rig) {
		a, b := r.pairOf(shape{cqSize: 8}, shape{})
		to := a.imports(b.reg(r.alloc(8), bothRights).Raw())
		src := r.patterned(8, 1)
		ended := uint64(0)
		dst := make([]fabric.Completion, 8)
		for submitted := uint64(0); ended < 5000; {
			for submitted < 5000 {
				k, err := a.try(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8), Ctx: submitted})
				if submitted += uint64(k); k == 0 {
					r.want("full", err, fabric.ErrAgain)
					break
				}
			}
			k, err := a.cq.Wait(r.ctx, dst)
			r.must(err)
			ended += uint64(k)
		}
		a.silent()
	}},
	{"many receives wait, and each gets its message", func(r *rig) {
		a, b := r.pair(shape{cqSize: r.info.Limits.RxSize + 16})
		count := min(r.info.Limits.RxSize, 1024)
		bufs, src := r.alloc(8*count), r.alloc(8*count)
		for i := range count {
			b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.at(8*i, 8).seg(), Ctx: uint64(i)})
		}
		for i := range count {
			src.at(8*i, 8).fill(uint64(i))
			r.must(a.send(fabric.Op{Kind: fabric.OpSend, Seg: src.at(8*i, 8).seg()}))
		}
		for i := range count {
			b.ok(uint64(i))
			r.has(bufs.at(8*i, 8), uint64(i), 0)
		}
	}},
}

// ring makes each of 64 endpoints send and write to the next.
func ring(r *rig) {
	const count, size = 64, 512
	h := r.host()
	s := shape{cq: h.cq(count * 8)}
	if r.rdm() {
		s.av = h.av(count)
	}
	var all []*node
	for range count {
		all = append(all, h.node(s))
	}
	far, src, bufs := r.alloc(count*size), r.alloc(count*size), r.alloc(count*size)
	to := h.imports(h.reg(far, bothRights).Raw())
	var from, till []*node // a connection for each pair of neighbours
	for i := range all {
		next := all[(i+1)%count]
		if r.rdm() {
			all[i].dest = all[i].insert(next.name)
		} else if i%2 == 0 {
			r.join(all[i], next)
		} else {
			continue
		}
		from, till = append(from, all[i]), append(till, next)
	}
	seen := make(map[uint64]bool)
	ended := func() {
		e := all[0].read()
		if e.Err != 0 || seen[e.Ctx] {
			r.Fatalf("op %d, again or failed: %v", e.Ctx, &e)
		}
		seen[e.Ctx] = true
	}
	for i := range from {
		m := src.at(i*size, size)
		m.fill(uint64(i))
		till[i].submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.at(i*size, size).seg(), Ctx: uint64(3 * i)})
		from[i].submit(fabric.Op{Kind: fabric.OpSend, Seg: m.seg(), Ctx: uint64(3*i + 1)},
			fabric.Op{Kind: fabric.OpWrite, Seg: m.seg(), RSeg: to.at(uint64(i*size), size), Ctx: uint64(3*i + 2)})
		for i >= dials && len(seen) < 3*(i-dials) {
			ended()
		}
	}
	for len(seen) < 3*len(from) {
		ended()
	}
	all[0].silent()
	for i := range from {
		r.has(far.at(i*size, size), uint64(i), 0)
		r.has(bufs.at(i*size, size), uint64(i), 0)
	}
}

// submitters write words of their own, with batches, while one goroutine reads the queue.
func submitters(r *rig) {
	const workers, rounds, batch = 16, 50, 4
	a, b := r.pair(shape{cqSize: 128})
	far, src := r.alloc(workers*8), r.alloc(workers*8)
	to := a.imports(b.reg(far, bothRights).Raw())
	var wg sync.WaitGroup
	for w := range workers {
		src.at(8*w, 8).fill(uint64(w))
		wg.Add(1)
		go func() {
			defer wg.Done()
			ops := make([]fabric.Op, batch)
			for round := range rounds {
				for i := range ops {
					ops[i] = fabric.Op{Kind: fabric.OpWrite, Seg: src.at(8*w, 8).seg(), RSeg: to.at(uint64(8*w), 8), Ctx: uint64((w*rounds+round)*batch + i)}
				}
				for todo := ops; len(todo) > 0; {
					k, err := a.try(todo...)
					todo = todo[k:]
					if err != nil && (fabric.ErrnoOf(err) != fabric.ErrAgain || r.ctx.Err() != nil) {
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
	left := tally(a, workers*rounds*batch, caseDeadline/4)
	wg.Wait()
	if left != 0 {
		r.Fatalf("%d ops did not end", left)
	}
	for w := range workers {
		r.has(far.at(8*w, 8), uint64(w), 0)
	}
}
