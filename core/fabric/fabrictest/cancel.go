// SPDX-License-Identifier: MIT

package fabrictest

import "mori/core/fabric"

var cancelCases = []testCase{
	{"cancel ends one receive", cancelOne},
	{"cancel of a completed or unknown op does nothing", func(r *rig) {
		a, b := r.pair(shape{})
		dst := r.alloc(8)
		receive(a, b, r.patterned(8, 1), dst)
		for _, ctx := range []uint64{77, 0, 12345} {
			r.must(b.ep.Cancel(ctx))
		}
		b.silent()
		r.has(dst, 1, 0)
	}},
	{"a receive is canceled once", func(r *rig) {
		_, b := r.pair(shape{})
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.alloc(8).seg(), Ctx: 3})
		for range 3 {
			r.must(b.ep.Cancel(3))
		}
		if e := b.read(); e.Err != fabric.ErrCanceled || e.Ctx != 3 || e.Kind != fabric.OpRecv {
			r.Errorf("canceled: %+v", e)
		}
		b.silent()
	}},
	{"all receives with one context are canceled, and no others", func(r *rig) {
		const count = 60
		a, b := r.pair(shape{})
		bufs := r.alloc(count * 8)
		for i := range uint64(count) {
			b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.at(int(8*i), 8).seg(), Ctx: i % 3})
		}
		r.must(b.ep.Cancel(1))
		for range count / 3 {
			if e := b.read(); e.Err != fabric.ErrCanceled || e.Ctx != 1 {
				r.Fatalf("canceled: %+v", e)
			}
		}
		b.silent()
		src := r.patterned(8, 4)
		for i := range count {
			if i%3 != 1 {
				a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg()})
				b.ok(uint64(i % 3))
				r.has(bufs.at(8*i, 8), 4, 0)
			} else {
				r.zero(bufs.at(8*i, 8))
			}
		}
	}},
	{"an endpoint without a peer cancels, too", func(r *rig) {
		n := r.host().node(shape{})
		n.submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.alloc(8).seg(), Ctx: 3})
		r.must(n.ep.Cancel(3))
		if e := n.read(); e.Err != fabric.ErrCanceled || e.Ctx != 3 {
			r.Errorf("canceled: %+v", e)
		}
	}},
	{"either a message or the cancel takes the receive", cancelRace},
}

// cancelRace cancels every second receive while messages come. None of them is lost, and each
// receive ends once.
func cancelRace(r *rig) {
	const count = 400
	a, b := r.pair(shape{cqSize: 2 * count})
	src, bufs := r.alloc(count*8), r.alloc(2*count*8)
	for i := range uint64(count) {
		src.at(int(8*i), 8).fill(i)
	}
	for i := range uint64(count / 2) {
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.at(int(8*i), 8).seg(), Ctx: i})
	}
	sent := make(chan error, 1)
	go func() {
		for i := range count / 4 {
			op := fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.at(8*i, 8).seg(), Data: uint64(i), Ctx: uint64(i)}
			if err := a.send(op); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := uint64(1); i < count/2; i += 2 {
		r.must(b.ep.Cancel(i))
	}
	ended, next := make(map[uint64]bool), uint64(0)
	for next < count/4 {
		e := b.read()
		switch {
		case ended[e.Ctx]:
			r.Fatalf("receive %d ended twice", e.Ctx)
		case e.Err == fabric.ErrCanceled && e.Ctx%2 == 1:
			r.zero(bufs.at(int(8*e.Ctx), 8))
		case e.Err != 0 || e.Data != next:
			r.Fatalf("got %+v, want message %d", e, next)
		default:
			r.has(bufs.at(int(8*e.Ctx), 8), next, 0)
			next++
		}
		ended[e.Ctx] = true
	}
	r.must(<-sent)
	for i := range uint64(count / 2) {
		r.must(b.ep.Cancel(i))
	}
	for left := count/2 - len(ended); left > 0; left-- {
		if e := b.read(); e.Err != fabric.ErrCanceled || ended[e.Ctx] {
			r.Fatalf("receive %d: %v", e.Ctx, &e)
		}
	}
	b.silent()
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
