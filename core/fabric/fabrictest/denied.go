// SPDX-License-Identifier: MIT

package fabrictest

import (
	"math"

	"mori/core/fabric"
)

var deniedCases = []testCase{
	{"without key, right or bounds nothing is touched", denied},
	{"of many segments one outside stops all", func(r *rig) {
		a, b := r.pair(shape{})
		far, src := r.alloc(4096), r.patterned(4096, 1)
		to := a.imports(b.reg(far, bothRights).Raw())
		for _, bad := range []fabric.RSeg{to.at(4090, 10), to.at(5000, 10), to.at(math.MaxUint64-4, 10)} {
			for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
				back := r.alloc(100)
				op := fabric.Op{Kind: kind, Seg: back.seg(), RSeg: to.at(0, 50), RMore: []fabric.RSeg{to.at(100, 40), bad}, Ctx: 3}
				if kind == fabric.OpWrite {
					op.Seg = src.at(0, 100).seg()
				}
				a.refused(op, fabric.ErrRange)
				r.zero(back)
				r.zero(far)
			}
		}
		stillWorks(r, a, b)
	}},
	{"a refused write tells the target nothing", func(r *rig) {
		a, b := r.pair(shape{})
		far, src := r.alloc(64), r.patterned(64, 1)
		to := a.imports(b.reg(far, fabric.AccessRemoteRead).Raw())
		a.refused(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.seg(), RSeg: to.at(0, 64), Data: 1}, fabric.ErrAccess)
		b.silent()
		stillWorks(r, a, b)
		b.silent()
	}},
	{"large refused writes do not hold up the rest", func(r *rig) {
		a, b := r.pair(shape{})
		src, far := r.patterned(16<<20, 1), r.alloc(16<<20)
		to := a.imports(b.reg(far, fabric.AccessRemoteRead).Raw())
		for range 4 {
			a.refused(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 16<<20), Ctx: 1}, fabric.ErrAccess)
		}
		r.zero(far.at(0, 4096))
		stillWorks(r, a, b)
	}},
	{"a closed region is gone, also when its id is used again", func(r *rig) {
		a, b := r.pair(shape{})
		far, src := r.alloc(64), r.patterned(64, 1)
		buf, key := fabric.Buffer{Addr: far.addr, Len: 64}, newKey()
		mr, err := b.dom.Reg(buf, bothRights, key)
		r.must(err)
		to := a.imports(mr.Raw())
		write := fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 64), Ctx: 1}
		a.do(write)
		clear(far.b)
		r.must(mr.Close())
		a.refused(write, fabric.ErrNoKey)
		key.Secret = newKey().Secret
		mr, err = b.dom.Reg(buf, bothRights, key)
		r.must(err)
		defer mr.Close()
		a.refused(write, fabric.ErrNoKey)
		r.zero(far)
		write.RSeg = a.imports(mr.Raw()).at(0, 64)
		a.do(write)
		r.has(far, 1, 0)
	}},
	{"a handle that was closed or never given is unknown", func(r *rig) {
		a, b := r.pair(shape{})
		far, src := r.alloc(64), r.patterned(64, 1)
		rm, err := a.dom.Import(b.reg(far, bothRights).Raw())
		r.must(err)
		old := rm.Key()
		r.must(rm.Close())
		r.must(rm.Close())
		a.imports(b.reg(far, bothRights).Raw()) // may take the place of the one that was closed
		for _, k := range []uint64{old, 0, math.MaxUint64} {
			a.refused(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: fabric.RSeg{Len: 64, Key: k}}, fabric.ErrNoKey)
			a.refused(fabric.Op{Kind: fabric.OpRead, Seg: src.seg(), RSeg: fabric.RSeg{Len: 64, Key: k}}, fabric.ErrNoKey)
		}
		r.zero(far)
		stillWorks(r, a, b)
	}},
}

// stillWorks moves bytes in both directions.
func stillWorks(r *rig, a, b *node) {
	r.Helper()
	src, far, back := r.patterned(1000, 8), r.alloc(1000), r.alloc(1000)
	to := a.imports(b.reg(far, bothRights).Raw())
	a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 1000), Ctx: 991})
	r.has(far, 8, 0)
	a.do(fabric.Op{Kind: fabric.OpRead, Seg: back.seg(), RSeg: to.at(0, 1000), Ctx: 992})
	r.has(back, 8, 0)
}

func denied(r *rig) {
	const n, size = 4096, 1 << 16
	a, b := r.pair(shape{})
	far, src, back := r.alloc(size), r.patterned(size, 1), r.alloc(size)
	open := b.reg(far, bothRights)
	readOnly, writeOnly := b.reg(far, fabric.AccessRemoteRead), b.reg(far, fabric.AccessRemoteWrite)
	key, _, err := fabric.ParseRegionKey(open.Raw())
	r.must(err)
	forged := func(change func(*fabric.RegionKey)) target {
		k := key
		change(&k)
		return a.imports(k.Raw(size))
	}
	good := a.imports(open.Raw())
	larger := a.imports(key.Raw(1 << 40)) // lies about the size
	both := []fabric.OpKind{fabric.OpWrite, fabric.OpRead}
	for _, c := range []struct {
		name  string
		at    fabric.RSeg
		kinds []fabric.OpKind
		want  fabric.Errno
	}{
		{"wrong last bit of the secret", forged(func(k *fabric.RegionKey) { k.Secret[15] ^= 1 }).at(0, n), both, fabric.ErrNoKey},
		{"wrong first bit of the secret", forged(func(k *fabric.RegionKey) { k.Secret[0] ^= 128 }).at(0, n), both, fabric.ErrNoKey},
		{"no secret", forged(func(k *fabric.RegionKey) { k.Secret = [16]byte{} }).at(0, n), both, fabric.ErrNoKey},
		{"unknown id", forged(func(k *fabric.RegionKey) { k.ID = math.MaxUint64 }).at(0, n), both, fabric.ErrNoKey},
		{"write without the right", a.imports(readOnly.Raw()).at(0, n), both[:1], fabric.ErrAccess},
		{"read without the right", a.imports(writeOnly.Raw()).at(0, n), both[1:], fabric.ErrAccess},
		{"one byte over the end", good.at(size-n+1, n), both, fabric.ErrRange},
		{"behind the end", good.at(size, 1), both, fabric.ErrRange},
		{"far behind the end", good.at(1<<50, n), both, fabric.ErrRange},
		{"from minus one", good.at(math.MaxUint64, n), both, fabric.ErrRange},
		{"up to zero", good.at(math.MaxUint64-n+1, n), both, fabric.ErrRange},
		{"inside the size of a forged key only", larger.at(size, n), both, fabric.ErrRange},
		{"half inside with a forged key", larger.at(size-n/2, n), both, fabric.ErrRange},
	} {
		for _, kind := range c.kinds {
			op := fabric.Op{Kind: kind, Seg: back.at(0, int(c.at.Len)).seg(), RSeg: c.at, Ctx: 5}
			if kind == fabric.OpWrite {
				op.Seg = src.at(0, int(c.at.Len)).seg()
			}
			k, err := a.ep.Submit([]fabric.Op{op})
			if k == 1 {
				if e := a.read(); e.Err != 0 {
					err = &e
				}
			}
			r.want(c.name+", "+kind.String(), err, c.want)
		}
	}
	r.zero(far)
	r.zero(back)
	stillWorks(r, a, b)
}
