// SPDX-License-Identifier: MIT

package transfer

import (
	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// CancelCases are the cases of Cancel.
var CancelCases = []rig.Case{
	{Name: "cancel ends one receive", Run: cancelOne},
	{Name: "cancel of a completed or unknown op does nothing", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		dst := r.Alloc(8)
		receive(a, b, r.Patterned(8, 1), dst)
		for _, ctx := range []uint64{77, 0, 12345} {
			r.Must(b.EP.Cancel(ctx))
		}
		b.Silent()
		r.Has(dst, 1, 0)
	}},
	{Name: "a receive is canceled once", Run: func(r *rig.Rig) {
		_, b := r.Pair(rig.Shape{})
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.Alloc(8).Seg(), Ctx: 3})
		for range 3 {
			r.Must(b.EP.Cancel(3))
		}
		if e := b.Read(); e.Err != fabric.ErrCanceled || e.Ctx != 3 || e.Kind != fabric.OpRecv {
			r.Errorf("canceled: %+v", e)
		}
		b.Silent()
	}},
	{Name: "all receives with one context are canceled, and no others", Run: func(r *rig.Rig) {
		const count = 60
		a, b := r.Pair(rig.Shape{})
		bufs := r.Alloc(count * 8)
		for i := range uint64(count) {
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.At(int(8*i), 8).Seg(), Ctx: i % 3})
		}
		r.Must(b.EP.Cancel(1))
		for range count / 3 {
			if e := b.Read(); e.Err != fabric.ErrCanceled || e.Ctx != 1 {
				r.Fatalf("canceled: %+v", e)
			}
		}
		b.Silent()
		src := r.Patterned(8, 4)
		for i := range count {
			if i%3 != 1 {
				a.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg()})
				b.OK(uint64(i % 3))
				r.Has(bufs.At(8*i, 8), 4, 0)
			} else {
				r.Zero(bufs.At(8*i, 8))
			}
		}
	}},
	{Name: "an endpoint without a peer cancels, too", Run: func(r *rig.Rig) {
		n := r.Host().Node(rig.Shape{})
		n.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: r.Alloc(8).Seg(), Ctx: 3})
		r.Must(n.EP.Cancel(3))
		if e := n.Read(); e.Err != fabric.ErrCanceled || e.Ctx != 3 {
			r.Errorf("canceled: %+v", e)
		}
	}},
	{Name: "either a message or the cancel takes the receive", Run: cancelRace},
}

// cancelRace cancels every second receive while messages come. None of them is lost, and each
// receive ends once.
func cancelRace(r *rig.Rig) {
	const count = 400
	a, b := r.Pair(rig.Shape{CQSize: 2 * count})
	src, bufs := r.Alloc(count*8), r.Alloc(2*count*8)
	for i := range uint64(count) {
		src.At(int(8*i), 8).Fill(i)
	}
	for i := range uint64(count / 2) {
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: bufs.At(int(8*i), 8).Seg(), Ctx: i})
	}
	sent := make(chan error, 1)
	go func() {
		for i := range count / 4 {
			op := fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.At(8*i, 8).Seg(), Data: uint64(i), Ctx: uint64(i)}
			if err := a.Send(op); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := uint64(1); i < count/2; i += 2 {
		r.Must(b.EP.Cancel(i))
	}
	ended, next := make(map[uint64]bool), uint64(0)
	for next < count/4 {
		e := b.Read()
		switch {
		case ended[e.Ctx]:
			r.Fatalf("receive %d ended twice", e.Ctx)
		case e.Err == fabric.ErrCanceled && e.Ctx%2 == 1:
			r.Zero(bufs.At(int(8*e.Ctx), 8))
		case e.Err != 0 || e.Data != next:
			r.Fatalf("got %+v, want message %d", e, next)
		default:
			r.Has(bufs.At(int(8*e.Ctx), 8), next, 0)
			next++
		}
		ended[e.Ctx] = true
	}
	r.Must(<-sent)
	for i := range uint64(count / 2) {
		r.Must(b.EP.Cancel(i))
	}
	for left := count/2 - len(ended); left > 0; left-- {
		if e := b.Read(); e.Err != fabric.ErrCanceled || ended[e.Ctx] {
			r.Fatalf("receive %d: %v", e.Ctx, &e)
		}
	}
	b.Silent()
}

func cancelOne(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	bufs := []rig.Buffer{r.Alloc(8), r.Alloc(8), r.Alloc(8)}
	for i, m := range bufs {
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: m.Seg(), Ctx: uint64(i)})
	}
	r.Must(b.EP.Cancel(1))
	if e := b.Read(); e.Err != fabric.ErrCanceled || e.Ctx != 1 || e.Kind != fabric.OpRecv {
		r.Fatalf("canceled: %+v", e)
	}
	for i := range uint64(2) {
		a.Do(fabric.Op{Kind: fabric.OpSend, Seg: r.Patterned(8, i).Seg()})
		b.OK(2 * i)
	}
	r.Has(bufs[0], 0, 0)
	r.Zero(bufs[1])
	r.Has(bufs[2], 1, 0)
	b.Silent()
}
