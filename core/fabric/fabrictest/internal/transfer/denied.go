// SPDX-License-Identifier: MIT

package transfer

import (
	"math"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// DeniedCases are the cases of accesses that the target refuses.
var DeniedCases = []rig.Case{
	{Name: "ops without the right or outside the bounds change nothing", Run: denied},
	{Name: "a forged key gives no access", Run: forged},
	{Name: "one segment outside the region fails the op", Run: func(r *rig.Rig) {
		if min(r.Info.Limits.SegLimit, r.Info.Limits.RSegLimit) < 3 {
			r.Skip("the provider takes less than three segments")
		}
		v := newVault(r, 4096)
		for _, at := range []uint64{4090, 5000, math.MaxUint64 - 4} {
			for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
				op := fabric.Op{Kind: kind, RSeg: v.to.At(0, 50), RMore: []fabric.RSeg{v.to.At(100, 40), v.to.At(at, 10)}, Ctx: 3}
				v.denied("a segment outside", op, 100, fabric.ErrRange)
				v = v.next()
			}
		}
		v.works()
	}},
	{Name: "a refused write does not notify the target", Run: func(r *rig.Rig) {
		v := newVault(r, 64)
		to := v.a.Imports(v.b.Reg(v.far, fabric.AccessRemoteRead).Raw())
		v.denied("no right", fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, RSeg: to.At(0, 64), Data: 1}, 64, fabric.ErrAccess)
		v.b.Silent()
		v = v.next()
		v.works()
		v.b.Silent()
	}},
	{Name: "large refused writes do not hold up the rest", Run: func(r *rig.Rig) {
		v := newVault(r, 16<<20)
		for range 4 {
			to := v.a.Imports(v.b.Reg(v.far, fabric.AccessRemoteRead).Raw())
			v.denied("no right", fabric.Op{Kind: fabric.OpWrite, RSeg: to.At(0, 16<<20), Ctx: 1}, 16<<20, fabric.ErrAccess)
			v = v.next()
		}
		v.works()
	}},
	{Name: "a closed region is gone, also when its id is used again", Run: closedRegion},
	{Name: "a closed or unknown handle is refused", Run: func(r *rig.Rig) {
		v := newVault(r, 64)
		rm, err := v.a.Dom.Import(v.b.Reg(v.far, rig.BothRights).Raw())
		r.Must(err)
		old := rm.Key()
		r.Must(rm.Close())
		r.Must(rm.Close())
		v.a.Imports(v.b.Reg(v.far, rig.BothRights).Raw()) // may take the place of the one that was closed
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
	*rig.Rig
	a, b *rig.Node
	far  rig.Buffer
	to   rig.Target // with both rights
	src  rig.Buffer // what a would write
	back rig.Buffer // what a would read into
}

func newVault(r *rig.Rig, size int) *vault {
	r.Helper()
	v := &vault{Rig: r, far: r.Alloc(size), src: r.Patterned(size, 1), back: r.Alloc(size)}
	v.connect()
	return v
}

func (v *vault) connect() {
	v.Helper()
	v.a, v.b = v.Pair(rig.Shape{})
	v.to = v.a.Imports(v.b.Reg(v.far, rig.BothRights).Raw())
}

// next is v, with a new pair if what was refused may have ended the connection.
func (v *vault) next() *vault {
	v.Helper()
	if v.DenialEnds() {
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
	op.Seg = v.back.At(0, n).Seg()
	if op.Kind == fabric.OpWrite {
		op.Seg = v.src.At(0, n).Seg()
	}
	defer func() {
		if v.Failed() {
			v.Logf("that was: %s, %v", what, op.Kind)
		}
	}()
	v.a.Refused(op, v.Denial(cause)...)
	v.Zero(v.far)
	v.Zero(v.back)
}

// works ends a case: what is allowed still is.
func (v *vault) works() {
	v.Helper()
	v.a.Silent()
	rig.StillWorks(v.Rig, v.a, v.b)
}

func denied(r *rig.Rig) {
	const n, size = 4096, 1 << 16
	v := newVault(r, size)
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
		{"one byte over the end", rig.BothRights, size - n + 1, n, both, fabric.ErrRange},
		{"past the end", rig.BothRights, size, 1, both, fabric.ErrRange},
		{"far past the end", rig.BothRights, 1 << 50, n, both, fabric.ErrRange},
		{"from minus one", rig.BothRights, math.MaxUint64, n, both, fabric.ErrRange},
		{"up to zero", rig.BothRights, math.MaxUint64 - n + 1, n, both, fabric.ErrRange},
	} {
		for _, kind := range c.kinds {
			to := v.to
			if c.access != rig.BothRights {
				to = v.a.Imports(v.b.Reg(v.far, c.access).Raw())
			}
			v.denied(c.name, fabric.Op{Kind: kind, RSeg: to.At(c.off, c.n), Ctx: 5}, int(c.n), c.want)
			v = v.next()
		}
	}
	v.works()
}

// forged changes what MR.Raw says, where that is a fabric.RegionKey.
func forged(r *rig.Rig) {
	if r.Info.Mode&fabric.ModeKeyIsProof != 0 {
		r.Skip("the provider's keys are small numbers: anyone who knows one may use it")
	}
	const n, size = 4096, 1 << 16
	v := newVault(r, size)
	key, _, err := fabric.ParseRegionKey(v.b.Reg(v.far, rig.BothRights).Raw())
	r.Must(err)
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
		to := v.a.Imports(k.Raw(c.size))
		for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
			v.denied(c.name, fabric.Op{Kind: kind, RSeg: to.At(c.off, n), Ctx: 5}, n, c.want)
		}
	}
	v.works()
}

func closedRegion(r *rig.Rig) {
	v := newVault(r, 64)
	buf, key := fabric.Buffer{Addr: v.far.Addr, Len: 64}, rig.NewKey()
	mr, err := v.b.Dom.Reg(buf, rig.BothRights, key)
	r.Must(err)
	write := fabric.Op{Kind: fabric.OpWrite, Seg: v.src.Seg(), RSeg: v.a.Imports(mr.Raw()).At(0, 64), Ctx: 1}
	v.a.Do(write)
	clear(v.far.B)
	r.Must(mr.Close())
	v.denied("closed", write, 64, fabric.ErrNoKey)
	if r.Info.Mode&fabric.ModeKeyIsProof != 0 {
		return // the same number would be the same proof
	}
	key.Secret = rig.NewKey().Secret
	mr, err = v.b.Dom.Reg(buf, rig.BothRights, key)
	r.Must(err)
	defer mr.Close()
	v.denied("the id's next region", write, 64, fabric.ErrNoKey)
	write.RSeg = v.a.Imports(mr.Raw()).At(0, 64)
	v.a.Do(write)
	r.Has(v.far, 1, 0)
}
