// SPDX-License-Identifier: MIT

package transfer

import (
	"encoding/binary"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
	"mori/core/internal/sys"
)

// RMACases are the cases of remote memory access.
var RMACases = []rig.Case{
	{Name: "writes and reads of every size", Run: rmaSizes},
	{Name: "64 MiB at once", Run: func(r *rig.Rig) { bigRMA(r, 64<<20) }},
	{Name: "segments are cut differently on both sides", Run: rmaSegments},
	{Name: "1024 blocks of 4 KiB in random order", Run: blocks},
	{Name: "blocks of one size", Run: func(r *rig.Rig) { DeviceBlocks(r, rig.HostPlace, rig.HostPlace) }},
	{Name: "a length of 0 is legal", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		dst := r.Alloc(16)
		to := a.Imports(b.Reg(dst, rig.BothRights).Raw())
		for _, off := range []uint64{0, 7, 16} {
			a.Do(fabric.Op{Kind: fabric.OpWrite, RSeg: to.At(off, 0), Ctx: 1})
			a.Do(fabric.Op{Kind: fabric.OpRead, RSeg: to.At(off, 0), Ctx: 2})
		}
		a.Do(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, RSeg: to.At(0, 0), Data: 5, Ctx: 3})
		if c := b.OK(0); c.Kind != fabric.OpRemoteWrite || c.Data != 5 {
			r.Errorf("got %+v", c)
		}
		r.Zero(dst)
	}},
	{Name: "remote data comes after the bytes", Run: remoteData},
	{Name: "remote data reports the number of bytes", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		src, far := r.Patterned(10000, 1), r.Alloc(10000)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		for _, n := range []uint64{0, 1, 100, 10000} {
			a.Submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.At(0, int(n)).Seg(), RSeg: to.At(0, n)})
			if c := b.OK(0); c.Len != n {
				r.Errorf("%d bytes were reported as %+v", n, c)
			}
			a.OK(0)
		}
	}},
	{Name: "remote data comes once for each write, in order", Run: remoteDataOrder},
	{Name: "an op after a fence sees earlier ops", Run: fenced},
	{Name: "a whole region and a part of the memory", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		all := r.Alloc(3 * 4096)
		src := r.Patterned(4096, 4)
		to := a.Imports(b.Reg(all.At(4096, 4096), rig.BothRights).Raw())
		a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 4096)})
		r.Zero(all.At(0, 4096))
		r.Has(all.At(4096, 4096), 4, 0)
		r.Zero(all.At(8192, 4096))
	}},
	{Name: "several regions and both directions", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		for i := range uint64(16) {
			ma, mb := r.Patterned(1000, i), r.Patterned(1000, 100+i)
			toA, toB := b.Imports(a.Reg(ma, rig.BothRights).Raw()), a.Imports(b.Reg(mb, rig.BothRights).Raw())
			got := r.Alloc(1000)
			a.Do(fabric.Op{Kind: fabric.OpRead, Seg: got.Seg(), RSeg: toB.At(0, 1000)})
			r.Has(got, 100+i, 0)
			b.Do(fabric.Op{Kind: fabric.OpWrite, Seg: mb.Seg(), RSeg: toA.At(0, 1000)})
			r.Has(ma, 100+i, 0)
		}
	}},
	{Name: "the hot path does not allocate", Run: allocations},
}

func rmaSizes(r *rig.Rig) {
	const guard = 64
	a, b := r.Pair(rig.Shape{})
	for i, n := range []int{1, 2, 7, 8, 9, 64, 100, 4095, 4096, 4097, 65536, 65537, 1 << 20, 5<<20 + 3} {
		seed := uint64(i + 1)
		src, far, back := r.Patterned(n, seed), r.Alloc(n+2*guard), r.Alloc(n+2*guard)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(guard, uint64(n)), Ctx: 1})
		r.Has(far.At(guard, n), seed, 0)
		a.Do(fabric.Op{Kind: fabric.OpRead, Seg: back.At(guard, n).Seg(), RSeg: to.At(guard, uint64(n)), Ctx: 2})
		r.Has(back.At(guard, n), seed, 0)
		for _, m := range []rig.Buffer{far, back} {
			r.Zero(m.At(0, guard))
			r.Zero(m.At(guard+n, guard))
		}
	}
}

func bigRMA(r *rig.Rig, n int) {
	a, b := r.Pair(rig.Shape{})
	src, far := r.Patterned(n, 1), r.Alloc(n)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, uint64(n)), Ctx: 1})
	r.Has(far, 1, 0)
	far.Fill(2)
	a.Do(fabric.Op{Kind: fabric.OpRead, Seg: src.Seg(), RSeg: to.At(0, uint64(n)), Ctx: 2})
	r.Has(src, 2, 0)
}

func rmaSegments(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	for _, c := range []struct{ n, local, remote int }{{100, 3, 100}, {1000, 1000, 7}, {9999, 17, 23}, {300000, 1000, 4096}, {1 << 20, 4096, 1021}} {
		src, far, back := r.Patterned(c.n, 5), r.Alloc(c.n), r.Alloc(c.n)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		op := fabric.Op{Kind: fabric.OpWrite}
		op.Seg, op.More = r.Cut(src, c.local)
		op.RSeg, op.RMore = r.CutRemote(to, c.n, c.remote)
		a.Do(op)
		r.Has(far, 5, 0)
		op.Kind = fabric.OpRead
		op.Seg, op.More = r.Cut(back, c.remote)
		op.RSeg, op.RMore = r.CutRemote(to, c.n, c.local)
		a.Do(op)
		r.Has(back, 5, 0)
	}
}

// blocks moves a paged cache: block i of one side is block (i*step) mod count of the other.
func blocks(r *rig.Rig) {
	const count, size, step = 1024, 4096, 389
	a, b := r.Pair(rig.Shape{})
	src, far, back := r.Patterned(count*size, 5), r.Alloc(count*size), r.Alloc(count*size)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	per := min(count, r.Info.Limits.SegLimit, r.Info.Limits.RSegLimit)
	move := func(kind fabric.OpKind, m rig.Buffer) {
		var ops []fabric.Op
		for i := 0; i < count; i += per {
			op := fabric.Op{Kind: kind, Ctx: uint64(len(ops))}
			for j := i; j < min(i+per, count); j++ {
				op.More = append(op.More, m.At(j*size, size).Seg())
				op.RMore = append(op.RMore, to.At(uint64(j*step%count*size), size))
			}
			op.Seg, op.More = op.More[0], op.More[1:]
			op.RSeg, op.RMore = op.RMore[0], op.RMore[1:]
			ops = append(ops, op)
		}
		a.Submit(ops...)
		for range ops {
			if e := a.Read(); e.Err != 0 {
				r.Fatal(&e)
			}
		}
	}
	move(fabric.OpWrite, src)
	for j := range count {
		r.Has(far.At(j*step%count*size, size), 5, uint64(j*size))
	}
	move(fabric.OpRead, back)
	r.Has(back, 5, 0)
}

// remoteData writes a fresh pattern each round, and looks at the bytes as soon as the data is
// there.
func remoteData(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	for i, n := range []int{8, 100, 4096, 100000, 2 << 20} {
		src, far := r.Alloc(n), r.Alloc(n)
		to := a.Imports(b.Reg(far, rig.BothRights).Raw())
		for round := range uint64(20) {
			seed := uint64(i)*100 + round
			src.Fill(seed)
			a.Submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.Seg(), RSeg: to.At(0, uint64(n)), Data: seed, Ctx: seed})
			c := b.OK(0)
			if c.Kind != fabric.OpRemoteWrite || c.Data != seed || c.Flags&fabric.OpRemoteData == 0 {
				r.Fatalf("reported as %+v", c)
			}
			r.Has(far, seed, 0)
			a.OK(seed)
		}
	}
}

func remoteDataOrder(r *rig.Rig) {
	const count = 3000
	a, b := r.Pair(rig.Shape{CQSize: 256})
	far := r.Alloc(8)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	src := r.Alloc(8)
	go func() {
		for i := 0; i < count; {
			n, err := a.Try(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.Seg(), RSeg: to.At(0, 8), Data: uint64(i)})
			i += n
			if err != nil {
				var dst [64]fabric.Completion
				if _, err := a.CQ.Wait(a.Ctx, dst[:]); err != nil {
					return
				}
			}
		}
	}()
	var seen [count]bool
	for range count {
		c := b.OK(0)
		if c.Data >= count || seen[c.Data] {
			r.Fatalf("data %d, again or never sent", c.Data)
		}
		seen[c.Data] = true
	}
	b.Silent()
}

func fenced(r *rig.Rig) {
	const n = 4 << 20
	a, b := r.Pair(rig.Shape{})
	src, far, back, flag := r.Alloc(n), r.Alloc(n), r.Alloc(n), r.Alloc(8)
	to, done := a.Imports(b.Reg(far, rig.BothRights).Raw()), a.Imports(b.Reg(flag, rig.BothRights).Raw())
	for round := range uint64(10) {
		src.Fill(round + 1)
		binary.LittleEndian.PutUint64(back.B, 0)
		a.Submit(
			fabric.Op{Kind: fabric.OpWrite, Seg: src.At(0, n/2).Seg(), RSeg: to.At(0, n/2), Ctx: 1},
			fabric.Op{Kind: fabric.OpWrite, Seg: src.At(n/2, n/2).Seg(), RSeg: to.At(n/2, n/2), Ctx: 2},
			fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpFence, Seg: back.Seg(), RSeg: to.At(0, n), Ctx: 3},
			fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpFence | fabric.OpRemoteData, Seg: src.At(0, 8).Seg(), RSeg: done.At(0, 8), Data: round, Ctx: 4})
		if c := b.OK(0); c.Data != round {
			r.Fatalf("round %d: %+v", round, c)
		}
		r.Has(far, round+1, 0)
		var sum uint64
		for range 4 {
			e := a.Read()
			if e.Err != 0 {
				r.Fatal(&e)
			}
			sum += e.Ctx
			if e.Ctx == 4 && sum != 10 {
				r.Fatal("an op behind a fence ended before the others")
			}
		}
		r.Has(back, round+1, 0)
		if sys.Load64(flag.Addr) != rig.Word(round+1, 0) {
			r.Fatal("the last write is not there")
		}
	}
}

func allocations(r *rig.Rig) {
	if rig.RaceEnabled {
		r.Skip("the race detector allocates")
	}
	a, b := r.Pair(rig.Shape{})
	src, far := r.Patterned(64, 1), r.Alloc(64)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	ops := make([]fabric.Op, 8)
	for i := range ops {
		ops[i] = fabric.Op{Kind: fabric.OpWrite, Dest: a.Dest, Seg: src.At(i*8, 8).Seg(), RSeg: to.At(uint64(i*8), 8)}
		if i%2 == 1 {
			ops[i].Kind = fabric.OpRead
		}
	}
	dst := make([]fabric.Completion, 16)
	round := func() {
		if n, err := a.EP.Submit(ops); n != len(ops) || err != nil {
			r.Fatal(n, err)
		}
		for done := 0; done < len(ops); {
			n, err := a.CQ.Wait(a.Ctx, dst)
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
