// SPDX-License-Identifier: MIT

package transfer

import (
	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// MessageCases are the cases of messages.
var MessageCases = []rig.Case{
	{Name: "messages of every size", Run: messageSizes},
	{Name: "messages arrive in order", Run: messageOrder},
	{Name: "a message that is too long is truncated", Run: truncated},
	{Name: "messages are gathered and scattered", Run: scattered},
	{Name: "messages carry remote data", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		src, dst := r.Patterned(32, 1), r.Alloc(32)
		for i, c := range []struct {
			flags fabric.OpFlags
			n     int
			data  uint64
		}{{fabric.OpRemoteData, 32, 1<<64 - 1}, {fabric.OpRemoteData, 0, 42}, {0, 32, 0}, {fabric.OpRemoteData, 1, 0}} {
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: uint64(i)})
			a.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.At(0, c.n).Seg(), Flags: c.flags, Data: c.data})
			got := b.OK(uint64(i))
			if got.Kind != fabric.OpRecv || got.Len != uint64(c.n) || got.Flags&fabric.OpRemoteData != c.flags || got.Data != c.data {
				r.Errorf("message %d: %+v", i, got)
			}
		}
	}},
	{Name: "messages wait for their receives", Run: unexpected},
	{Name: "an early message that is too long is truncated", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		a.Submit(fabric.Op{Kind: fabric.OpSend, Seg: r.Patterned(64, 1).Seg(), Ctx: 78})
		dst := r.Alloc(10)
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 77})
		tooLong(r, a, b, 10)
		r.Has(dst, 1, 0)
	}},
	{Name: "injected memory can be reused at once", Run: injected},
	{Name: "success is reported on request, failure always", Run: selective},
	{Name: "both sides send at once", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		src, toA, toB := r.Patterned(1<<20, 1), r.Alloc(1<<20), r.Alloc(1<<20)
		for i := range uint64(20) {
			clear(toA.B)
			clear(toB.B)
			a.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: toA.Seg(), Ctx: 2 * i}, fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 2*i + 1})
			b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: toB.Seg(), Ctx: 2 * i}, fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 2*i + 1})
			for _, n := range []*rig.Node{a, b} {
				if x, y := n.Read(), n.Read(); x.Err != 0 || y.Err != 0 || x.Ctx+y.Ctx != 4*i+1 {
					r.Fatalf("round %d: %v and %v", i, &x, &y)
				}
			}
			r.Has(toA, 1, 0)
			r.Has(toB, 1, 0)
		}
	}},
}

// receive posts a receive at b, sends src from a, and returns the receive's result.
func receive(a, b *rig.Node, src, dst rig.Buffer) fabric.ErrEntry {
	a.Helper()
	b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 77})
	a.Do(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 78})
	e := b.Read()
	if e.Ctx != 77 || e.Kind != fabric.OpRecv {
		a.Fatalf("received as %+v", e)
	}
	return e
}

func messageSizes(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	for i, n := range []int{0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 8192, 65535, 65536, 1 << 20, 1<<20 + 1, 8 << 20} {
		src, dst := r.Patterned(n, uint64(i)), r.Alloc(n+8)
		if e := receive(a, b, src, dst); e.Err != 0 || e.Len != uint64(n) {
			r.Fatalf("%d bytes: %+v", n, e)
		}
		r.Has(dst.At(0, n), uint64(i), 0)
		r.Zero(dst.At(n, 8))
	}
}

func messageOrder(r *rig.Rig) {
	const count, size = 600, 24
	a, b := r.Pair(rig.Shape{})
	dst, src := r.Alloc(count*size), r.Alloc(count*size)
	posted := 0
	post := func() {
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.At(posted*size, size).Seg(), Ctx: uint64(posted)})
		posted++
	}
	for posted < min(count, r.Info.Limits.RxSize) {
		post()
	}
	sent := make(chan error, 1)
	go func() {
		sent <- a.Pipeline(count, func(i int) fabric.Op {
			m := src.At(i*size, size-i%size)
			m.Fill(uint64(i))
			return fabric.Op{Kind: fabric.OpSend, Seg: m.Seg(), Flags: fabric.OpRemoteData, Data: uint64(i)}
		})
	}()
	for i := range uint64(count) {
		if c := b.OK(i); c.Data != i || c.Len != size-i%size {
			r.Fatalf("receive %d: %+v", i, c)
		}
		r.Has(dst.At(int(i)*size, size-int(i%size)), i, 0)
		if posted < count {
			post()
		}
	}
	r.Must(<-sent)
}

func truncated(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	for _, c := range []struct{ send, space int }{{1, 0}, {100, 99}, {1 << 20, 5}, {1 << 20, 1<<20 - 8}} {
		src, dst := r.Patterned(c.send, 3), r.Alloc(c.space+64)
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.At(0, c.space).Seg(), Ctx: 77})
		a.Submit(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 78})
		tooLong(r, a, b, c.space)
		r.Has(dst.At(0, c.space), 3, 0)
		r.Zero(dst.At(c.space, 64))
		if r.DenialEnds() {
			a, b = r.Pair(rig.Shape{})
		}
		if e := receive(a, b, src, r.Alloc(c.send)); e.Err != 0 {
			r.Fatalf("the message after one that was cut: %v", &e)
		}
	}
}

// tooLong looks at the ends of send 78 at a, and of receive 77 at b, which is too short for it.
func tooLong(r *rig.Rig, a, b *rig.Node, space int) {
	r.Helper()
	if e := b.Read(); e.Err != fabric.ErrTruncated || e.Ctx != 77 || e.Kind != fabric.OpRecv || e.Len != uint64(space) {
		r.Fatalf("a message for a space of %d bytes: %+v", space, e)
	}
	if e := a.Read(); e.Ctx != 78 || e.Kind != fabric.OpSend || e.Err != 0 && !r.DenialEnds() {
		r.Fatalf("its send: %+v", e)
	}
}

func scattered(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	for _, c := range []struct{ n, from, to int }{{1000, 13, 29}, {100000, 997, 301}, {100000, 100000, 777}, {1 << 20, 4096, 1024}} {
		src, dst := r.Patterned(c.n, 9), r.Alloc(c.n)
		send, recv := fabric.Op{Kind: fabric.OpSend, Ctx: 1}, fabric.Op{Kind: fabric.OpRecv, Ctx: 2}
		send.Seg, send.More = r.Cut(src, c.from)
		recv.Seg, recv.More = r.Cut(dst, c.to)
		b.Submit(recv)
		a.Do(send)
		if got := b.OK(2); got.Len != uint64(c.n) {
			r.Fatalf("%d bytes from pieces of %d into pieces of %d: %+v", c.n, c.from, c.to, got)
		}
		r.Has(dst, 9, 0)
	}
}

func unexpected(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	sizes := []int{0, 5, 4096, 100, 0, 20000, 1}
	for i, n := range sizes {
		a.Submit(fabric.Op{Kind: fabric.OpSend, Seg: r.Patterned(n, uint64(i)).Seg(), Flags: fabric.OpRemoteData, Data: uint64(i)})
	}
	for i, n := range sizes {
		dst := r.Alloc(n)
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: uint64(i)})
		if c := b.OK(uint64(i)); c.Len != uint64(n) || c.Data != uint64(i) {
			r.Fatalf("message %d: %+v", i, c)
		}
		r.Has(dst, uint64(i), 0)
		a.OK(0)
	}
}

func injected(r *rig.Rig) {
	limit := int(r.Info.Limits.MaxInject)
	if limit == 0 {
		r.Skip("the provider injects nothing")
	}
	a, b := r.Pair(rig.Shape{})
	src, dst := r.Alloc(limit), r.Alloc(256*limit)
	to := a.Imports(b.Reg(dst, rig.BothRights).Raw())
	for i := range 128 {
		src.Fill(uint64(i))
		off := uint64(i * limit)
		a.Submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpInject | fabric.OpWantCQE, Seg: src.Seg(), RSeg: to.At(off, uint64(limit))})
		clear(src.B)
	}
	for i := range 128 {
		at := (128 + i) * limit
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.At(at, limit).Seg(), Ctx: uint64(i)})
		src.Fill(uint64(128 + i))
		send := fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpInject, Seg: src.Seg()}
		send.Seg, send.More = r.Cut(src, limit/3+1)
		a.Submit(send)
		clear(src.B)
		b.OK(uint64(i))
	}
	a.Do(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpFence, Ctx: 5, RSeg: to.At(0, 0)}) // the only success that is reported
	for i := range 256 {
		r.Has(dst.At(i*limit, limit), uint64(i), 0)
	}
	a.Silent()
	a.Refused(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpInject, Seg: src.At(0, 1).Seg(), RSeg: to.At(uint64(len(dst.B)), 1), Ctx: 6},
		r.Denial(fabric.ErrRange)...)
}

func selective(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{Selective: true})
	src, dst := r.Patterned(64, 1), r.Alloc(64)
	to := a.Imports(b.Reg(dst, rig.BothRights).Raw())
	for i := range uint64(200) {
		flags := fabric.OpFlags(0)
		if i%10 == 9 {
			flags = fabric.OpWantCQE
		}
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Flags: flags, Ctx: i})
		a.Submit(
			fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 64), Ctx: 1000 + i},
			fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Flags: flags, Ctx: i})
		if flags != 0 {
			a.OK(i)
			b.OK(i)
		}
	}
	a.Do(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpWantCQE | fabric.OpFence, RSeg: to.At(0, 0), Ctx: 2}) // all have ended
	a.Silent()
	b.Silent()
	a.Refused(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(32, 64), Ctx: 3}, r.Denial(fabric.ErrRange)...)
	a.Silent()
}
