// SPDX-License-Identifier: MIT

package fabrictest

import "mori/core/fabric"

var messageCases = []testCase{
	{"messages of every size", messageSizes},
	{"messages arrive in order", messageOrder},
	{"a message that is too long is truncated", truncated},
	{"messages are gathered and scattered", scattered},
	{"messages carry remote data", func(r *rig) {
		a, b := r.pair(shape{})
		src, dst := r.patterned(32, 1), r.alloc(32)
		for i, c := range []struct {
			flags fabric.OpFlags
			n     int
			data  uint64
		}{{fabric.OpRemoteData, 32, 1<<64 - 1}, {fabric.OpRemoteData, 0, 42}, {0, 32, 0}, {fabric.OpRemoteData, 1, 0}} {
			b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: uint64(i)})
			a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.at(0, c.n).seg(), Flags: c.flags, Data: c.data})
			got := b.ok(uint64(i))
			if got.Kind != fabric.OpRecv || got.Len != uint64(c.n) || got.Flags&fabric.OpRemoteData != c.flags || got.Data != c.data {
				r.Errorf("message %d: %+v", i, got)
			}
		}
	}},
	{"messages wait for their receives", unexpected},
	{"an early message that is too long is truncated", func(r *rig) {
		a, b := r.pair(shape{})
		a.submit(fabric.Op{Kind: fabric.OpSend, Seg: r.patterned(64, 1).seg(), Ctx: 78})
		dst := r.alloc(10)
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 77})
		r.tooLong(a, b, 10)
		r.has(dst, 1, 0)
	}},
	{"injected memory can be reused at once", injected},
	{"success is reported on request, failure always", selective},
	{"both sides send at once", func(r *rig) {
		a, b := r.pair(shape{})
		src, toA, toB := r.patterned(1<<20, 1), r.alloc(1<<20), r.alloc(1<<20)
		for i := range uint64(20) {
			clear(toA.b)
			clear(toB.b)
			a.submit(fabric.Op{Kind: fabric.OpRecv, Seg: toA.seg(), Ctx: 2 * i}, fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 2*i + 1})
			b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: toB.seg(), Ctx: 2 * i}, fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 2*i + 1})
			for _, n := range []*node{a, b} {
				if x, y := n.read(), n.read(); x.Err != 0 || y.Err != 0 || x.Ctx+y.Ctx != 4*i+1 {
					r.Fatalf("round %d: %v and %v", i, &x, &y)
				}
			}
			r.has(toA, 1, 0)
			r.has(toB, 1, 0)
		}
	}},
}

// receive posts a receive at b, sends src from a, and returns the receive's result.
func receive(a, b *node, src, dst memory) fabric.ErrEntry {
	a.Helper()
	b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 77})
	a.do(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 78})
	e := b.read()
	if e.Ctx != 77 || e.Kind != fabric.OpRecv {
		a.Fatalf("received as %+v", e)
	}
	return e
}

func messageSizes(r *rig) {
	a, b := r.pair(shape{})
	for i, n := range []int{0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 8192, 65535, 65536, 1 << 20, 1<<20 + 1, 8 << 20} {
		src, dst := r.patterned(n, uint64(i)), r.alloc(n+8)
		if e := receive(a, b, src, dst); e.Err != 0 || e.Len != uint64(n) {
			r.Fatalf("%d bytes: %+v", n, e)
		}
		r.has(dst.at(0, n), uint64(i), 0)
		r.zero(dst.at(n, 8))
	}
}

func messageOrder(r *rig) {
	const count, size = 600, 24
	a, b := r.pair(shape{})
	dst, src := r.alloc(count*size), r.alloc(count*size)
	posted := 0
	post := func() {
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.at(posted*size, size).seg(), Ctx: uint64(posted)})
		posted++
	}
	for posted < min(count, r.info.Limits.RxSize) {
		post()
	}
	sent := make(chan error, 1)
	go func() {
		sent <- a.pipeline(count, func(i int) fabric.Op {
			m := src.at(i*size, size-i%size)
			m.fill(uint64(i))
			return fabric.Op{Kind: fabric.OpSend, Seg: m.seg(), Flags: fabric.OpRemoteData, Data: uint64(i)}
		})
	}()
	for i := range uint64(count) {
		if c := b.ok(i); c.Data != i || c.Len != size-i%size {
			r.Fatalf("receive %d: %+v", i, c)
		}
		r.has(dst.at(int(i)*size, size-int(i%size)), i, 0)
		if posted < count {
			post()
		}
	}
	r.must(<-sent)
}

func truncated(r *rig) {
	a, b := r.pair(shape{})
	for _, c := range []struct{ send, space int }{{1, 0}, {100, 99}, {1 << 20, 5}, {1 << 20, 1<<20 - 8}} {
		src, dst := r.patterned(c.send, 3), r.alloc(c.space+64)
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.at(0, c.space).seg(), Ctx: 77})
		a.submit(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 78})
		r.tooLong(a, b, c.space)
		r.has(dst.at(0, c.space), 3, 0)
		r.zero(dst.at(c.space, 64))
		if r.fatal() {
			a, b = r.pair(shape{})
		}
		if e := receive(a, b, src, r.alloc(c.send)); e.Err != 0 {
			r.Fatalf("the message after one that was cut: %v", &e)
		}
	}
}

// tooLong looks at the ends of send 78 at a, and of receive 77 at b, which is too short for it.
func (r *rig) tooLong(a, b *node, space int) {
	r.Helper()
	if e := b.read(); e.Err != fabric.ErrTruncated || e.Ctx != 77 || e.Kind != fabric.OpRecv || e.Len != uint64(space) {
		r.Fatalf("a message for a space of %d bytes: %+v", space, e)
	}
	if e := a.read(); e.Ctx != 78 || e.Kind != fabric.OpSend || e.Err != 0 && !r.fatal() {
		r.Fatalf("its send: %+v", e)
	}
}

// cut splits m into segments of n, n+1, n+2... bytes, with an empty one here and there, and a long
// last one where the provider's limit is reached.
func (r *rig) cut(m memory, n int) (first fabric.Seg, more []fabric.Seg) {
	limit := r.info.Limits.SegLimit
	for i := 0; len(m.b) > 0; i++ {
		k := min(n+i%7, len(m.b))
		if i%5 == 4 && len(more)+1 < limit {
			more = append(more, fabric.Seg{})
		}
		if len(more)+1 == limit {
			k = len(m.b)
		}
		more = append(more, m.at(0, k).seg())
		m = m.at(k, len(m.b)-k)
	}
	return more[0], more[1:]
}

// rcut is cut for the first n bytes of a region.
func (r *rig) rcut(t target, n, step int) (first fabric.RSeg, more []fabric.RSeg) {
	limit := r.info.Limits.RSegLimit
	for i, off := 0, 0; off < n; i++ {
		k := min(step+i%11, n-off)
		if len(more)+1 == limit {
			k = n - off
		}
		more = append(more, t.at(uint64(off), uint64(k)))
		if i%6 == 3 && len(more)+1 < limit {
			more = append(more, t.at(uint64(off), 0))
		}
		off += k
	}
	return more[0], more[1:]
}

func scattered(r *rig) {
	a, b := r.pair(shape{})
	for _, c := range []struct{ n, from, to int }{{1000, 13, 29}, {100000, 997, 301}, {100000, 100000, 777}, {1 << 20, 4096, 1024}} {
		src, dst := r.patterned(c.n, 9), r.alloc(c.n)
		send, recv := fabric.Op{Kind: fabric.OpSend, Ctx: 1}, fabric.Op{Kind: fabric.OpRecv, Ctx: 2}
		send.Seg, send.More = r.cut(src, c.from)
		recv.Seg, recv.More = r.cut(dst, c.to)
		b.submit(recv)
		a.do(send)
		if got := b.ok(2); got.Len != uint64(c.n) {
			r.Fatalf("%d bytes from pieces of %d into pieces of %d: %+v", c.n, c.from, c.to, got)
		}
		r.has(dst, 9, 0)
	}
}

func unexpected(r *rig) {
	a, b := r.pair(shape{})
	sizes := []int{0, 5, 4096, 100, 0, 20000, 1}
	for i, n := range sizes {
		a.submit(fabric.Op{Kind: fabric.OpSend, Seg: r.patterned(n, uint64(i)).seg(), Flags: fabric.OpRemoteData, Data: uint64(i)})
	}
	for i, n := range sizes {
		dst := r.alloc(n)
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: uint64(i)})
		if c := b.ok(uint64(i)); c.Len != uint64(n) || c.Data != uint64(i) {
			r.Fatalf("message %d: %+v", i, c)
		}
		r.has(dst, uint64(i), 0)
		a.ok(0)
	}
}

func injected(r *rig) {
	limit := int(r.info.Limits.MaxInject)
	if limit == 0 {
		r.Skip("the provider injects nothing")
	}
	a, b := r.pair(shape{})
	src, dst := r.alloc(limit), r.alloc(256*limit)
	to := a.imports(b.reg(dst, bothRights).Raw())
	for i := range 128 {
		src.fill(uint64(i))
		off := uint64(i * limit)
		a.submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpInject | fabric.OpWantCQE, Seg: src.seg(), RSeg: to.at(off, uint64(limit))})
		clear(src.b)
	}
	for i := range 128 {
		at := (128 + i) * limit
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.at(at, limit).seg(), Ctx: uint64(i)})
		src.fill(uint64(128 + i))
		send := fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpInject, Seg: src.seg()}
		send.Seg, send.More = r.cut(src, limit/3+1)
		a.submit(send)
		clear(src.b)
		b.ok(uint64(i))
	}
	a.do(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpFence, Ctx: 5, RSeg: to.at(0, 0)}) // the only success that is reported
	for i := range 256 {
		r.has(dst.at(i*limit, limit), uint64(i), 0)
	}
	a.silent()
	a.refused(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpInject, Seg: src.at(0, 1).seg(), RSeg: to.at(uint64(len(dst.b)), 1), Ctx: 6},
		r.denial(fabric.ErrRange)...)
}

func selective(r *rig) {
	a, b := r.pair(shape{selective: true})
	src, dst := r.patterned(64, 1), r.alloc(64)
	to := a.imports(b.reg(dst, bothRights).Raw())
	for i := range uint64(200) {
		flags := fabric.OpFlags(0)
		if i%10 == 9 {
			flags = fabric.OpWantCQE
		}
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Flags: flags, Ctx: i})
		a.submit(
			fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64), Ctx: 1000 + i},
			fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Flags: flags, Ctx: i})
		if flags != 0 {
			a.ok(i)
			b.ok(i)
		}
	}
	a.do(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpWantCQE | fabric.OpFence, RSeg: to.at(0, 0), Ctx: 2}) // all have ended
	a.silent()
	b.silent()
	a.refused(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(32, 64), Ctx: 3}, r.denial(fabric.ErrRange)...)
	a.silent()
}
