// SPDX-License-Identifier: MIT

package fabrictest

import (
	"encoding/binary"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

var rmaCases = []testCase{
	{"writes and reads of every size", rmaSizes},
	{"64 MiB at once", func(r *rig) { bigRMA(r, 64<<20) }},
	{"segments are cut differently on both sides", rmaSegments},
	{"1024 blocks of 4 KiB in random order", blocks},
	{"blocks of one size", func(r *rig) { deviceBlocks(r, hostPlace, hostPlace) }},
	{"a length of 0 is legal", func(r *rig) {
		a, b := r.pair(shape{})
		dst := r.alloc(16)
		to := a.imports(b.reg(dst, bothRights).Raw())
		for _, off := range []uint64{0, 7, 16} {
			a.do(fabric.Op{Kind: fabric.OpWrite, RSeg: to.at(off, 0), Ctx: 1})
			a.do(fabric.Op{Kind: fabric.OpRead, RSeg: to.at(off, 0), Ctx: 2})
		}
		a.do(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, RSeg: to.at(0, 0), Data: 5, Ctx: 3})
		if c := b.ok(0); c.Kind != fabric.OpRemoteWrite || c.Data != 5 {
			r.Errorf("got %+v", c)
		}
		r.zero(dst)
	}},
	{"remote data comes after the bytes", remoteData},
	{"remote data reports the number of bytes", func(r *rig) {
		a, b := r.pair(shape{})
		src, far := r.patterned(10000, 1), r.alloc(10000)
		to := a.imports(b.reg(far, bothRights).Raw())
		for _, n := range []uint64{0, 1, 100, 10000} {
			a.submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.at(0, int(n)).seg(), RSeg: to.at(0, n)})
			if c := b.ok(0); c.Len != n {
				r.Errorf("%d bytes were told as %+v", n, c)
			}
			a.ok(0)
		}
	}},
	{"remote data comes once for each write, in order", remoteDataOrder},
	{"an op after a fence sees earlier ops", fenced},
	{"a whole region and a part of the memory", func(r *rig) {
		a, b := r.pair(shape{})
		all := r.alloc(3 * 4096)
		src := r.patterned(4096, 4)
		to := a.imports(b.reg(all.at(4096, 4096), bothRights).Raw())
		a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 4096)})
		r.zero(all.at(0, 4096))
		r.has(all.at(4096, 4096), 4, 0)
		r.zero(all.at(8192, 4096))
	}},
	{"several regions and both directions", func(r *rig) {
		a, b := r.pair(shape{})
		for i := range uint64(16) {
			ma, mb := r.patterned(1000, i), r.patterned(1000, 100+i)
			toA, toB := b.imports(a.reg(ma, bothRights).Raw()), a.imports(b.reg(mb, bothRights).Raw())
			got := r.alloc(1000)
			a.do(fabric.Op{Kind: fabric.OpRead, Seg: got.seg(), RSeg: toB.at(0, 1000)})
			r.has(got, 100+i, 0)
			b.do(fabric.Op{Kind: fabric.OpWrite, Seg: mb.seg(), RSeg: toA.at(0, 1000)})
			r.has(ma, 100+i, 0)
		}
	}},
	{"the hot path does not allocate", allocations},
}

func rmaSizes(r *rig) {
	const guard = 64
	a, b := r.pair(shape{})
	for i, n := range []int{1, 2, 7, 8, 9, 64, 100, 4095, 4096, 4097, 65536, 65537, 1 << 20, 5<<20 + 3} {
		seed := uint64(i + 1)
		src, far, back := r.patterned(n, seed), r.alloc(n+2*guard), r.alloc(n+2*guard)
		to := a.imports(b.reg(far, bothRights).Raw())
		a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(guard, uint64(n)), Ctx: 1})
		r.has(far.at(guard, n), seed, 0)
		a.do(fabric.Op{Kind: fabric.OpRead, Seg: back.at(guard, n).seg(), RSeg: to.at(guard, uint64(n)), Ctx: 2})
		r.has(back.at(guard, n), seed, 0)
		for _, m := range []memory{far, back} {
			r.zero(m.at(0, guard))
			r.zero(m.at(guard+n, guard))
		}
	}
}

func bigRMA(r *rig, n int) {
	a, b := r.pair(shape{})
	src, far := r.patterned(n, 1), r.alloc(n)
	to := a.imports(b.reg(far, bothRights).Raw())
	a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, uint64(n)), Ctx: 1})
	r.has(far, 1, 0)
	far.fill(2)
	a.do(fabric.Op{Kind: fabric.OpRead, Seg: src.seg(), RSeg: to.at(0, uint64(n)), Ctx: 2})
	r.has(src, 2, 0)
}

func rmaSegments(r *rig) {
	a, b := r.pair(shape{})
	for _, c := range []struct{ n, local, remote int }{{100, 3, 100}, {1000, 1000, 7}, {9999, 17, 23}, {300000, 1000, 4096}, {1 << 20, 4096, 1021}} {
		src, far, back := r.patterned(c.n, 5), r.alloc(c.n), r.alloc(c.n)
		to := a.imports(b.reg(far, bothRights).Raw())
		op := fabric.Op{Kind: fabric.OpWrite}
		op.Seg, op.More = r.cut(src, c.local)
		op.RSeg, op.RMore = r.rcut(to, c.n, c.remote)
		a.do(op)
		r.has(far, 5, 0)
		op.Kind = fabric.OpRead
		op.Seg, op.More = r.cut(back, c.remote)
		op.RSeg, op.RMore = r.rcut(to, c.n, c.local)
		a.do(op)
		r.has(back, 5, 0)
	}
}

// blocks moves a paged cache: block i of one side is block (i*step) mod count of the other.
func blocks(r *rig) {
	const count, size, step = 1024, 4096, 389
	a, b := r.pair(shape{})
	src, far, back := r.patterned(count*size, 5), r.alloc(count*size), r.alloc(count*size)
	to := a.imports(b.reg(far, bothRights).Raw())
	per := min(count, r.info.Limits.SegLimit, r.info.Limits.RSegLimit)
	move := func(kind fabric.OpKind, m memory) {
		var ops []fabric.Op
		for i := 0; i < count; i += per {
			op := fabric.Op{Kind: kind, Ctx: uint64(len(ops))}
			for j := i; j < min(i+per, count); j++ {
				op.More = append(op.More, m.at(j*size, size).seg())
				op.RMore = append(op.RMore, to.at(uint64(j*step%count*size), size))
			}
			op.Seg, op.More = op.More[0], op.More[1:]
			op.RSeg, op.RMore = op.RMore[0], op.RMore[1:]
			ops = append(ops, op)
		}
		a.submit(ops...)
		for range ops {
			if e := a.read(); e.Err != 0 {
				r.Fatal(&e)
			}
		}
	}
	move(fabric.OpWrite, src)
	for j := range count {
		r.has(far.at(j*step%count*size, size), 5, uint64(j*size))
	}
	move(fabric.OpRead, back)
	r.has(back, 5, 0)
}

// remoteData writes a fresh pattern each round, and looks at the bytes as soon as the data is
// there.
func remoteData(r *rig) {
	a, b := r.pair(shape{})
	for i, n := range []int{8, 100, 4096, 100000, 2 << 20} {
		src, far := r.alloc(n), r.alloc(n)
		to := a.imports(b.reg(far, bothRights).Raw())
		for round := range uint64(20) {
			seed := uint64(i)*100 + round
			src.fill(seed)
			a.submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.seg(), RSeg: to.at(0, uint64(n)), Data: seed, Ctx: seed})
			c := b.ok(0)
			if c.Kind != fabric.OpRemoteWrite || c.Data != seed || c.Flags&fabric.OpRemoteData == 0 {
				r.Fatalf("told as %+v", c)
			}
			r.has(far, seed, 0)
			a.ok(seed)
		}
	}
}

func remoteDataOrder(r *rig) {
	const count = 3000
	a, b := r.pair(shape{cqSize: 256})
	far := r.alloc(8)
	to := a.imports(b.reg(far, bothRights).Raw())
	src := r.alloc(8)
	go func() {
		for i := 0; i < count; {
			n, err := a.try(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.seg(), RSeg: to.at(0, 8), Data: uint64(i)})
			i += n
			if err != nil {
				var dst [64]fabric.Completion
				if _, err := a.cq.Wait(a.ctx, dst[:]); err != nil {
					return
				}
			}
		}
	}()
	var seen [count]bool
	for range count {
		c := b.ok(0)
		if c.Data >= count || seen[c.Data] {
			r.Fatalf("data %d, again or never sent", c.Data)
		}
		seen[c.Data] = true
	}
	b.silent()
}

func fenced(r *rig) {
	const n = 4 << 20
	a, b := r.pair(shape{})
	src, far, back, flag := r.alloc(n), r.alloc(n), r.alloc(n), r.alloc(8)
	to, done := a.imports(b.reg(far, bothRights).Raw()), a.imports(b.reg(flag, bothRights).Raw())
	for round := range uint64(10) {
		src.fill(round + 1)
		binary.LittleEndian.PutUint64(back.b, 0)
		a.submit(
			fabric.Op{Kind: fabric.OpWrite, Seg: src.at(0, n/2).seg(), RSeg: to.at(0, n/2), Ctx: 1},
			fabric.Op{Kind: fabric.OpWrite, Seg: src.at(n/2, n/2).seg(), RSeg: to.at(n/2, n/2), Ctx: 2},
			fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpFence, Seg: back.seg(), RSeg: to.at(0, n), Ctx: 3},
			fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpFence | fabric.OpRemoteData, Seg: src.at(0, 8).seg(), RSeg: done.at(0, 8), Data: round, Ctx: 4})
		if c := b.ok(0); c.Data != round {
			r.Fatalf("round %d: %+v", round, c)
		}
		r.has(far, round+1, 0)
		var sum uint64
		for range 4 {
			e := a.read()
			if e.Err != 0 {
				r.Fatal(&e)
			}
			sum += e.Ctx
			if e.Ctx == 4 && sum != 10 {
				r.Fatal("an op behind a fence ended before the others")
			}
		}
		r.has(back, round+1, 0)
		if sys.Load64(flag.addr) != word(round+1, 0) {
			r.Fatal("the last write is not there")
		}
	}
}

func allocations(r *rig) {
	if raceEnabled {
		r.Skip("the race detector allocates")
	}
	a, b := r.pair(shape{})
	src, far := r.patterned(64, 1), r.alloc(64)
	to := a.imports(b.reg(far, bothRights).Raw())
	ops := make([]fabric.Op, 8)
	for i := range ops {
		ops[i] = fabric.Op{Kind: fabric.OpWrite, Dest: a.dest, Seg: src.at(i*8, 8).seg(), RSeg: to.at(uint64(i*8), 8)}
		if i%2 == 1 {
			ops[i].Kind = fabric.OpRead
		}
	}
	dst := make([]fabric.Completion, 16)
	round := func() {
		if n, err := a.ep.Submit(ops); n != len(ops) || err != nil {
			r.Fatal(n, err)
		}
		for done := 0; done < len(ops); {
			n, err := a.cq.Wait(a.ctx, dst)
			if err != nil {
				r.Fatal(err)
			}
			done += n
		}
	}
	for range 200 {
		round() // buffers grow to their bounds
	}
	if n := testing.AllocsPerRun(500, round); n >= 1 {
		r.Errorf("%v allocations in %d ops", n, len(ops))
	}
}
