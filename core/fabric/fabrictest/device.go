// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"mori/core/fabric"
)

// A deviceCase is a behaviour with memory at two places, of which one at least is a device.
type deviceCase struct {
	name string
	run  func(r *rig, near, far Place)
}

var deviceCases = []deviceCase{
	{"writes and reads of every size", deviceSizes},
	{"scattered segments of the host and of the place", deviceScattered},
	{"blocks of one size", deviceBlocks},
	{"remote data comes after the bytes", deviceRemoteData},
	{"both ends at once", deviceBothWays},
	{"an op after a fence sees earlier ops", deviceFenced},
	{"refused ops change nothing", deviceRefused},
	{"nothing lands in a region that was closed", deviceRegionClosed},
	{"nothing lands after the endpoint closed", deviceEndpointClosed},
}

// TestDevice runs the cases of memory access on a provider that takes device memory, of which the
// first place, and the second if there is one, are. The names are under msg/near-far/case and rdm.
func TestDevice(t *testing.T, open Open, places ...Place) {
	gpu := places[0]
	pairs := [][2]Place{{gpu, gpu}, {hostPlace, gpu}, {gpu, hostPlace}}
	if len(places) > 1 {
		pairs = append(pairs, [2]Place{gpu, places[1]}, [2]Place{places[1], gpu})
	}
	for _, e := range epTypes {
		t.Run(e.name, func(t *testing.T) {
			infos, err := open(t).GetInfo(t.Context(), "", "", deviceHints(e.typ))
			if errors.Is(err, fabric.ErrNoData) && e.typ == fabric.EPRDM {
				t.Skipf("the provider has no such endpoints: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			if e.typ == fabric.EPRDM {
				pairs = pairs[:1]
			}
			for _, p := range pairs {
				t.Run(p[0].Name+"-"+p[1].Name, func(t *testing.T) {
					for _, c := range deviceCases {
						t.Run(c.name, func(t *testing.T) {
							r := newRig(t, open, e.typ)
							r.info = infos[0]
							c.run(r, p[0], p[1])
						})
					}
				})
			}
		})
	}
}

func deviceHints(typ fabric.EPType) *fabric.Info {
	return hints(typ, fabric.CapMSG|fabric.CapRMA|fabric.CapHMEM)
}

// ends makes a pair with a stock at each end, and b's as a knows it.
func (r *rig) ends(near, far Place, n int) (a, b *node, src, dst *stock, to target) {
	r.Helper()
	a, b = r.pair(shape{})
	src, dst = a.stock(near, n, 1), b.stock(far, n, 2)
	return a, b, src, dst, a.imports(dst.mr.Raw())
}

func deviceSizes(r *rig, near, far Place) {
	const most = 9<<20 + 3
	a, _, src, dst, to := r.ends(near, far, most+64)
	for i, n := range []int{0, 1, 4095, 4096, 65537, 1 << 20, most} {
		op := fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(17, n), RSeg: to.at(33, uint64(n)), Ctx: 1}
		a.do(op)
		copy(dst.model[33:33+n], src.model[17:])
		dst.check("written %d bytes", n)
		dst.fill(uint64(i + 10))
		op.Kind = fabric.OpRead
		a.do(op)
		copy(src.model[17:17+n], dst.model[33:])
		src.check("read %d bytes", n)
	}
}

func deviceScattered(r *rig, near, far Place) {
	const n = 1 << 20
	a, _, src, dst, to := r.ends(near, far, n)
	mine := a.stock(hostPlace, n, 3)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 4 {
		kind := []fabric.OpKind{fabric.OpWrite, fabric.OpRead}[round%2]
		src.fill(uint64(round + 4))
		mine.fill(uint64(round + 20))
		dst.fill(uint64(round + 40))
		at, there := 0, 0
		count := 0
		for ; count < 12; count++ {
			op := fabric.Op{Kind: kind, Ctx: uint64(count), RSeg: to.at(0, 0), Seg: fabric.Seg{}}
			total := 0
			for range 1 + random.IntN(50) {
				k := random.IntN(1000) * random.IntN(2)
				from := src
				if round > 1 && random.IntN(2) == 0 {
					from = mine
				}
				op.More = append(op.More, from.seg(at, k))
				if kind == fabric.OpWrite {
					copy(dst.model[there+total:], from.model[at:at+k])
				} else {
					copy(from.model[at:at+k], dst.model[there+total:])
				}
				at, total = at+k, total+k
			}
			for left := total; left > 0; {
				k := min(left, 1+random.IntN(900))
				op.RMore = append(op.RMore, to.at(uint64(there), uint64(k)))
				there, left = there+k, left-k
			}
			a.submit(op)
		}
		for range count {
			if e := a.read(); e.Err != 0 {
				r.Fatal(&e)
			}
		}
		for _, s := range []*stock{src, mine, dst} {
			s.check("%v in round %d", kind, round)
		}
	}
}

func deviceRemoteData(r *rig, near, far Place) {
	a, b, src, dst, to := r.ends(near, far, 3<<20)
	for i, n := range []int{0, 100, 100000, 3 << 20} {
		src.fill(uint64(i + 5))
		a.submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.seg(0, n), RSeg: to.at(0, uint64(n)), Data: uint64(i), Ctx: 9})
		if c := b.ok(0); c.Kind != fabric.OpRemoteWrite || c.Data != uint64(i) || c.Len != uint64(n) {
			r.Errorf("%d bytes were told as %+v", n, c)
		}
		copy(dst.model[:n], src.model)
		dst.check("told of %d bytes", n)
		a.ok(9)
	}
}

func deviceBothWays(r *rig, near, far Place) {
	const n, part = 4 << 20, 128 << 10
	a, b, mine, yours, to := r.ends(near, far, n)
	back := b.imports(mine.mr.Raw())
	failed := make(chan error, 2)
	go func() {
		failed <- a.pipeline(n/part/2, func(i int) fabric.Op {
			return fabric.Op{Kind: fabric.OpWrite, Seg: mine.seg(2*i*part, part), RSeg: to.at(uint64(2*i*part), part)}
		})
	}()
	go func() {
		failed <- b.pipeline(n/part/2, func(i int) fabric.Op {
			return fabric.Op{Kind: fabric.OpWrite, Seg: yours.seg((2*i+1)*part, part), RSeg: back.at(uint64(2*i+1)*part, part)}
		})
	}()
	r.must(errors.Join(<-failed, <-failed))
	for i := 0; i < n/part; i += 2 {
		copy(yours.model[i*part:(i+1)*part], mine.model[i*part:])
		copy(mine.model[(i+1)*part:(i+2)*part], yours.model[(i+1)*part:])
	}
	mine.check("here")
	yours.check("there")
}

func deviceFenced(r *rig, near, far Place) {
	const n = 2<<20 + 5
	a, _, src, dst, to := r.ends(near, far, n)
	back := a.stock(near, n, 3)
	for i := range uint64(5) {
		src.fill(i + 7)
		a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(0, n), RSeg: to.at(0, n), Ctx: 1},
			fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpFence, Seg: back.seg(0, n), RSeg: to.at(0, n), Ctx: 2})
		a.ok(1)
		a.ok(2)
		copy(dst.model, src.model)
		copy(back.model, src.model)
		back.check("read behind a fence")
		dst.check("written before it")
	}
}

func deviceRefused(r *rig, near, far Place) {
	const n = 3 << 20
	a, b, src, dst, to := r.ends(near, far, n)
	gone := b.stock(far, n, 3)
	toGone := a.imports(gone.mr.Raw())
	r.must(gone.mr.Close())
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		for _, k := range []int{8, 2 << 20} {
			a.refused(fabric.Op{Kind: kind, Seg: src.seg(0, k), RSeg: to.at(uint64(n-k+1), uint64(k))}, r.denial(fabric.ErrRange)...)
			if r.fatal() {
				return
			}
			a.refused(fabric.Op{Kind: kind, Seg: src.seg(0, k), RSeg: toGone.at(0, uint64(k))}, fabric.ErrNoKey)
		}
	}
	for _, s := range []*stock{src, dst, gone} {
		s.check("refused")
	}
	a.do(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(0, n), RSeg: to.at(0, n)})
	copy(dst.model, src.model)
	dst.check("after all that")
}

// deviceRegionClosed closes the target's region while writes are on their way. Each of them ends,
// and what the memory has then it keeps.
func deviceRegionClosed(r *rig, near, far Place) {
	const n, part = 8 << 20, 256 << 10
	a, _, src, dst, to := r.ends(near, far, n)
	stop, over := make(chan struct{}), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		over <- a.flood(stop, begun, func(i int) fabric.Op {
			at := i % (n / part) * part
			return fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(at, part), RSeg: to.at(uint64(at), part)}
		}, fabric.ErrNoKey)
	}()
	<-begun
	r.must(dst.mr.Close())
	dst.fill(9)
	time.Sleep(5 * time.Millisecond) // what would land has the time to
	dst.check("after the region closed")
	close(stop)
	r.must(<-over)
	dst.check("after all ops ended")
}

// deviceEndpointClosed closes the initiator while reads are on their way.
func deviceEndpointClosed(r *rig, near, far Place) {
	const n, part = 8 << 20, 256 << 10
	a, _, src, _, to := r.ends(near, far, n)
	for i := range 40 {
		at := i % (n / part) * part
		if _, err := a.try(fabric.Op{Kind: fabric.OpRead, Seg: src.seg(at, part), RSeg: to.at(uint64(at), part)}); err != nil {
			r.want("submit", err, fabric.ErrAgain)
		}
	}
	time.Sleep(time.Millisecond)
	r.must(a.ep.Close())
	src.fill(9)
	time.Sleep(5 * time.Millisecond)
	src.check("after the endpoint closed")
}

// flood keeps 32 ops on their way until stop, or until one fails, by the cause. It returns when all
// have ended.
func (n *node) flood(stop <-chan struct{}, begun chan<- struct{}, op func(i int) fabric.Op, cause error) error {
	var failure error
	for i, flying, ended := 0, 0, false; !ended || flying > 0; {
		select {
		case <-stop:
			ended = true
		default:
		}
		if !ended && flying < 32 {
			if k, err := n.try(op(i)); k == 1 {
				i, flying = i+1, flying+1
				continue
			} else if !errors.Is(err, fabric.ErrAgain) {
				return err
			}
		}
		if flying == 0 {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		e, err := next(n.ctx, n.cq)
		if err != nil {
			return err
		}
		if flying--; begun != nil {
			close(begun)
			begun = nil
		}
		if e.Err != 0 && failure == nil {
			if ended = true; !errors.Is(&e, cause) {
				failure = &e
			}
		}
	}
	return failure
}
