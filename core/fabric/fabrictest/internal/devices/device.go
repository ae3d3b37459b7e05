// SPDX-License-Identifier: MIT

package devices

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
	"mori/core/fabric/fabrictest/internal/transfer"
)

// A deviceCase is a behaviour with memory at two places, of which one at least is a device.
type deviceCase struct {
	name string
	run  func(r *rig.Rig, near, far rig.Place)
}

var deviceCases = []deviceCase{
	{"writes and reads of every size", deviceSizes},
	{"scattered segments of the host and of the place", deviceScattered},
	{"blocks of one size", transfer.DeviceBlocks},
	{"remote data comes after the bytes", deviceRemoteData},
	{"both ends at once", deviceBothWays},
	{"an op after a fence sees earlier ops", deviceFenced},
	{"refused ops change nothing", deviceRefused},
	{"nothing lands in a region that was closed", deviceRegionClosed},
	{"nothing lands after the endpoint closed", deviceEndpointClosed},
}

// Test is fabrictest.TestDevice.
func Test(t *testing.T, open rig.Open, places ...rig.Place) {
	gpu := places[0]
	pairs := [][2]rig.Place{{gpu, gpu}, {rig.HostPlace, gpu}, {gpu, rig.HostPlace}}
	if len(places) > 1 {
		pairs = append(pairs, [2]rig.Place{gpu, places[1]}, [2]rig.Place{places[1], gpu})
	}
	for _, e := range rig.EPTypes {
		t.Run(e.Name, func(t *testing.T) {
			infos, err := open(t).GetInfo(t.Context(), "", "", deviceHints(e.Type))
			if errors.Is(err, fabric.ErrNoData) && e.Type == fabric.EPRDM {
				t.Skipf("the provider has no such endpoints: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			if e.Type == fabric.EPRDM {
				pairs = pairs[:1]
			}
			for _, p := range pairs {
				t.Run(p[0].Name+"-"+p[1].Name, func(t *testing.T) {
					for _, c := range deviceCases {
						t.Run(c.name, func(t *testing.T) {
							r := rig.New(t, open, e.Type)
							r.Info = infos[0]
							c.run(r, p[0], p[1])
						})
					}
				})
			}
		})
	}
}

func deviceHints(typ fabric.EPType) *fabric.Info {
	return rig.Hints(typ, fabric.CapMSG|fabric.CapRMA|fabric.CapHMEM)
}

func deviceSizes(r *rig.Rig, near, far rig.Place) {
	const most = 9<<20 + 3
	a, _, src, dst, to := rig.Ends(r, near, far, most+64)
	for i, n := range []int{0, 1, 4095, 4096, 65537, 1 << 20, most} {
		op := fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(17, n), RSeg: to.At(33, uint64(n)), Ctx: 1}
		a.Do(op)
		copy(dst.Model[33:33+n], src.Model[17:])
		dst.Check("written %d bytes", n)
		dst.Fill(uint64(i + 10))
		op.Kind = fabric.OpRead
		a.Do(op)
		copy(src.Model[17:17+n], dst.Model[33:])
		src.Check("read %d bytes", n)
	}
}

func deviceScattered(r *rig.Rig, near, far rig.Place) {
	const n = 1 << 20
	a, _, src, dst, to := rig.Ends(r, near, far, n)
	mine := a.Stock(rig.HostPlace, n, 3)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 4 {
		kind := []fabric.OpKind{fabric.OpWrite, fabric.OpRead}[round%2]
		src.Fill(uint64(round + 4))
		mine.Fill(uint64(round + 20))
		dst.Fill(uint64(round + 40))
		at, there := 0, 0
		count := 0
		for ; count < 12; count++ {
			op := fabric.Op{Kind: kind, Ctx: uint64(count), RSeg: to.At(0, 0), Seg: fabric.Seg{}}
			total := 0
			for range 1 + random.IntN(50) {
				k := random.IntN(1000) * random.IntN(2)
				from := src
				if round > 1 && random.IntN(2) == 0 {
					from = mine
				}
				op.More = append(op.More, from.Seg(at, k))
				if kind == fabric.OpWrite {
					copy(dst.Model[there+total:], from.Model[at:at+k])
				} else {
					copy(from.Model[at:at+k], dst.Model[there+total:])
				}
				at, total = at+k, total+k
			}
			for left := total; left > 0; {
				k := min(left, 1+random.IntN(900))
				op.RMore = append(op.RMore, to.At(uint64(there), uint64(k)))
				there, left = there+k, left-k
			}
			a.Submit(op)
		}
		for range count {
			if e := a.Read(); e.Err != 0 {
				r.Fatal(&e)
			}
		}
		for _, s := range []*rig.Stock{src, mine, dst} {
			s.Check("%v in round %d", kind, round)
		}
	}
}

func deviceRemoteData(r *rig.Rig, near, far rig.Place) {
	a, b, src, dst, to := rig.Ends(r, near, far, 3<<20)
	for i, n := range []int{0, 100, 100000, 3 << 20} {
		src.Fill(uint64(i + 5))
		a.Submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.Seg(0, n), RSeg: to.At(0, uint64(n)), Data: uint64(i), Ctx: 9})
		if c := b.OK(0); c.Kind != fabric.OpRemoteWrite || c.Data != uint64(i) || c.Len != uint64(n) {
			r.Errorf("%d bytes were reported as %+v", n, c)
		}
		copy(dst.Model[:n], src.Model)
		dst.Check("after the completion of %d bytes", n)
		a.OK(9)
	}
}

func deviceBothWays(r *rig.Rig, near, far rig.Place) {
	const n, part = 4 << 20, 128 << 10
	a, b, mine, yours, to := rig.Ends(r, near, far, n)
	back := b.Imports(mine.MR.Raw())
	failed := make(chan error, 2)
	go func() {
		failed <- a.Pipeline(n/part/2, func(i int) fabric.Op {
			return fabric.Op{Kind: fabric.OpWrite, Seg: mine.Seg(2*i*part, part), RSeg: to.At(uint64(2*i*part), part)}
		})
	}()
	go func() {
		failed <- b.Pipeline(n/part/2, func(i int) fabric.Op {
			return fabric.Op{Kind: fabric.OpWrite, Seg: yours.Seg((2*i+1)*part, part), RSeg: back.At(uint64(2*i+1)*part, part)}
		})
	}()
	r.Must(errors.Join(<-failed, <-failed))
	for i := 0; i < n/part; i += 2 {
		copy(yours.Model[i*part:(i+1)*part], mine.Model[i*part:])
		copy(mine.Model[(i+1)*part:(i+2)*part], yours.Model[(i+1)*part:])
	}
	mine.Check("here")
	yours.Check("there")
}

func deviceFenced(r *rig.Rig, near, far rig.Place) {
	const n = 2<<20 + 5
	a, _, src, dst, to := rig.Ends(r, near, far, n)
	back := a.Stock(near, n, 3)
	for i := range uint64(5) {
		src.Fill(i + 7)
		a.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(0, n), RSeg: to.At(0, n), Ctx: 1},
			fabric.Op{Kind: fabric.OpRead, Flags: fabric.OpFence, Seg: back.Seg(0, n), RSeg: to.At(0, n), Ctx: 2})
		a.OK(1)
		a.OK(2)
		copy(dst.Model, src.Model)
		copy(back.Model, src.Model)
		back.Check("read behind a fence")
		dst.Check("written before it")
	}
}

func deviceRefused(r *rig.Rig, near, far rig.Place) {
	const n = 3 << 20
	a, b, src, dst, to := rig.Ends(r, near, far, n)
	gone := b.Stock(far, n, 3)
	toGone := a.Imports(gone.MR.Raw())
	r.Must(gone.MR.Close())
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		for _, k := range []int{8, 2 << 20} {
			a.Refused(fabric.Op{Kind: kind, Seg: src.Seg(0, k), RSeg: to.At(uint64(n-k+1), uint64(k))}, r.Denial(fabric.ErrRange)...)
			if r.DenialEnds() {
				return
			}
			a.Refused(fabric.Op{Kind: kind, Seg: src.Seg(0, k), RSeg: toGone.At(0, uint64(k))}, fabric.ErrNoKey)
		}
	}
	for _, s := range []*rig.Stock{src, dst, gone} {
		s.Check("refused")
	}
	a.Do(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(0, n), RSeg: to.At(0, n)})
	copy(dst.Model, src.Model)
	dst.Check("after all that")
}

// deviceRegionClosed closes the target's region while writes are on their way. Each of them ends,
// and what the memory has then it keeps.
func deviceRegionClosed(r *rig.Rig, near, far rig.Place) {
	const n, part = 8 << 20, 256 << 10
	a, _, src, dst, to := rig.Ends(r, near, far, n)
	stop, over := make(chan struct{}), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		over <- floodDevice(a, stop, begun, func(i int) fabric.Op {
			at := i % (n / part) * part
			return fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(at, part), RSeg: to.At(uint64(at), part)}
		}, fabric.ErrNoKey)
	}()
	<-begun
	r.Must(dst.MR.Close())
	dst.Fill(9)
	time.Sleep(5 * time.Millisecond) // what would land has the time to
	dst.Check("after the region closed")
	close(stop)
	r.Must(<-over)
	dst.Check("after all ops ended")
}

// deviceEndpointClosed closes the initiator while reads are on their way.
func deviceEndpointClosed(r *rig.Rig, near, far rig.Place) {
	const n, part = 8 << 20, 256 << 10
	a, _, src, _, to := rig.Ends(r, near, far, n)
	for i := range 40 {
		at := i % (n / part) * part
		if _, err := a.Try(fabric.Op{Kind: fabric.OpRead, Seg: src.Seg(at, part), RSeg: to.At(uint64(at), part)}); err != nil {
			r.Want("submit", err, fabric.ErrAgain)
		}
	}
	time.Sleep(time.Millisecond)
	r.Must(a.EP.Close())
	src.Fill(9)
	time.Sleep(5 * time.Millisecond)
	src.Check("after the endpoint closed")
}

// floodDevice keeps 32 ops on their way until stop, or until one fails, by the cause. It returns
// when all have ended.
func floodDevice(n *rig.Node, stop <-chan struct{}, begun chan<- struct{}, op func(i int) fabric.Op, cause error) error {
	var failure error
	for i, flying, ended := 0, 0, false; !ended || flying > 0; {
		select {
		case <-stop:
			ended = true
		default:
		}
		if !ended && flying < 32 {
			if k, err := n.Try(op(i)); k == 1 {
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
		e, err := rig.Next(n.Ctx, n.CQ)
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
