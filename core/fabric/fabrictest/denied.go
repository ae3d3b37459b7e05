// SPDX-License-Identifier: MIT

package fabrictest

import (
	"math"

	"mori/core/fabric"
)

var deniedCases = []testCase{
	{"ops without the right or outside the bounds change nothing", denied},
	{"a forged key gives no access", forged},
	{"one segment outside the region fails the op", func(r *rig) {
		if min(r.info.Limits.SegLimit, r.info.Limits.RSegLimit) < 3 {
			r.Skip("the provider takes less than three segments")
		}
		v := r.vault(4096)
		for _, at := range []uint64{4090, 5000, math.MaxUint64 - 4} {
			for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
				op := fabric.Op{Kind: kind, RSeg: v.to.at(0, 50), RMore: []fabric.RSeg{v.to.at(100, 40), v.to.at(at, 10)}, Ctx: 3}
				v.denied("a segment outside", op, 100, fabric.ErrRange)
				v = v.next()
			}
		}
		v.works()
	}},
	{"a refused write does not notify the target", func(r *rig) {
		v := r.vault(64)
		to := v.a.imports(v.b.reg(v.far, fabric.AccessRemoteRead).Raw())
		v.denied("no right", fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, RSeg: to.at(0, 64), Data: 1}, 64, fabric.ErrAccess)
		v.b.silent()
		v = v.next()
		v.works()
		v.b.silent()
	}},
	{"large refused writes do not hold up the rest", func(r *rig) {
		v := r.vault(16 << 20)
		for range 4 {
			to := v.a.imports(v.b.reg(v.far, fabric.AccessRemoteRead).Raw())
			v.denied("no right", fabric.Op{Kind: fabric.OpWrite, RSeg: to.at(0, 16<<20), Ctx: 1}, 16<<20, fabric.ErrAccess)
			v = v.next()
		}
		v.works()
	}},
	{"a closed region is gone, also when its id is used again", closedRegion},
	{"a closed or unknown handle is refused", func(r *rig) {
		v := r.vault(64)
		rm, err := v.a.dom.Import(v.b.reg(v.far, bothRights).Raw())
		r.must(err)
		old := rm.Key()
		r.must(rm.Close())
		r.must(rm.Close())
		v.a.imports(v.b.reg(v.far, bothRights).Raw()) // may take the place of the one that was closed
		for _, k := range []uint64{old, 0, math.MaxUint64} {
			for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
				v.denied("no such handle", fabric.Op{Kind: kind, RSeg: fabric.RSeg{Len: 64, Key: k}}, 64, fabric.ErrNoKey)
				v = v.next()
			}
		}
		v.works()
	}},
}

// A vault is a pair, and memory of b that a tries to get at in vain. It is zero, and stays so.
type vault struct {
	*rig
	a, b *node
	far  memory
	to   target // with both rights
	src  memory // what a would write
	back memory // what a would read into
}

func (r *rig) vault(size int) *vault {
	r.Helper()
	v := &vault{rig: r, far: r.alloc(size), src: r.patterned(size, 1), back: r.alloc(size)}
	v.connect()
	return v
}

func (v *vault) connect() {
	v.Helper()
	v.a, v.b = v.pair(shape{})
	v.to = v.a.imports(v.b.reg(v.far, bothRights).Raw())
}

// next is v, with a new pair if what was refused may have ended the connection.
func (v *vault) next() *vault {
	v.Helper()
	if v.fatal() {
		w := *v
		w.connect()
		return &w
	}
	return v
}

// denied makes a submit op, with n bytes of local memory, and checks that it ends with cause and
// moves nothing.
func (v *vault) denied(what string, op fabric.Op, n int, cause fabric.Errno) {
	v.Helper()
	op.Seg = v.back.at(0, n).seg()
	if op.Kind == fabric.OpWrite {
		op.Seg = v.src.at(0, n).seg()
	}
	defer func() {
		if v.Failed() {
			v.Logf("that was: %s, %v", what, op.Kind)
		}
	}()
	v.a.refused(op, v.denial(cause)...)
	v.zero(v.far)
	v.zero(v.back)
}

// works ends a case: what is allowed still is.
func (v *vault) works() {
	v.Helper()
	v.a.silent()
	stillWorks(v.rig, v.a, v.b)
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
	v := r.vault(size)
	both := []fabric.OpKind{fabric.OpWrite, fabric.OpRead}
	for _, c := range []struct {
		name   string
		access fabric.Access
		off, n uint64
		kinds  []fabric.OpKind
		want   fabric.Errno
	}{
		{"write without the right", fabric.AccessRemoteRead, 0, n, both[:1], fabric.ErrAccess},
		{"read without the right", fabric.AccessRemoteWrite, 0, n, both[1:], fabric.ErrAccess},
		{"one byte over the end", bothRights, size - n + 1, n, both, fabric.ErrRange},
		{"past the end", bothRights, size, 1, both, fabric.ErrRange},
		{"far past the end", bothRights, 1 << 50, n, both, fabric.ErrRange},
		{"from minus one", bothRights, math.MaxUint64, n, both, fabric.ErrRange},
		{"up to zero", bothRights, math.MaxUint64 - n + 1, n, both, fabric.ErrRange},
	} {
		for _, kind := range c.kinds {
			to := v.to
			if c.access != bothRights {
				to = v.a.imports(v.b.reg(v.far, c.access).Raw())
			}
			v.denied(c.name, fabric.Op{Kind: kind, RSeg: to.at(c.off, c.n), Ctx: 5}, int(c.n), c.want)
			v = v.next()
		}
	}
	v.works()
}

// forged changes what MR.Raw says, where that is a fabric.RegionKey.
func forged(r *rig) {
	if r.info.Mode&fabric.ModeKeyIsProof != 0 {
		r.Skip("the provider's keys are small numbers: anyone who knows one may use it")
	}
	const n, size = 4096, 1 << 16
	v := r.vault(size)
	key, _, err := fabric.ParseRegionKey(v.b.reg(v.far, bothRights).Raw())
	r.must(err)
	for _, c := range []struct {
		name   string
		change func(*fabric.RegionKey)
		size   uint64
		off    uint64
		want   fabric.Errno
	}{
		{"wrong last bit of the secret", func(k *fabric.RegionKey) { k.Secret[15] ^= 1 }, size, 0, fabric.ErrNoKey},
		{"wrong first bit of the secret", func(k *fabric.RegionKey) { k.Secret[0] ^= 128 }, size, 0, fabric.ErrNoKey},
		{"no secret", func(k *fabric.RegionKey) { k.Secret = [16]byte{} }, size, 0, fabric.ErrNoKey},
		{"unknown id", func(k *fabric.RegionKey) { k.ID = math.MaxUint64 }, size, 0, fabric.ErrNoKey},
		{"inside the size of a forged key only", func(*fabric.RegionKey) {}, 1 << 40, size, fabric.ErrRange},
		{"half inside with a forged key", func(*fabric.RegionKey) {}, 1 << 40, size - n/2, fabric.ErrRange},
	} {
		k := key
		c.change(&k)
		to := v.a.imports(k.Raw(c.size))
		for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
			v.denied(c.name, fabric.Op{Kind: kind, RSeg: to.at(c.off, n), Ctx: 5}, n, c.want)
		}
	}
	v.works()
}

func closedRegion(r *rig) {
	v := r.vault(64)
	buf, key := fabric.Buffer{Addr: v.far.addr, Len: 64}, newKey()
	mr, err := v.b.dom.Reg(buf, bothRights, key)
	r.must(err)
	write := fabric.Op{Kind: fabric.OpWrite, Seg: v.src.seg(), RSeg: v.a.imports(mr.Raw()).at(0, 64), Ctx: 1}
	v.a.do(write)
	clear(v.far.b)
	r.must(mr.Close())
	v.denied("closed", write, 64, fabric.ErrNoKey)
	if r.info.Mode&fabric.ModeKeyIsProof != 0 {
		return // the same number would be the same proof
	}
	key.Secret = newKey().Secret
	mr, err = v.b.dom.Reg(buf, bothRights, key)
	r.must(err)
	defer mr.Close()
	v.denied("the id's next region", write, 64, fabric.ErrNoKey)
	write.RSeg = v.a.imports(mr.Raw()).at(0, 64)
	v.a.do(write)
	r.has(v.far, 1, 0)
}
