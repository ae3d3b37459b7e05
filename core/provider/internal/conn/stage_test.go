// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

// places are the locations of the memory of both ends: -1 is the host, the others are devices.
var places = [][2]int{{-1, 0}, {0, -1}, {0, 1}, {-1, -1}}

var stageSizes = []int{0, 1, 1 << 20, 3<<20 + 3}

// TestStagedMoves moves memory of every kind in both directions, in one piece and in many.
func TestStagedMoves(t *testing.T) {
	for name, cfg := range map[string]Config{"1 link": {}, "3 links, checked": {Links: 3, Checksum: true}, "packed": {Links: 2, Compress: CompressSmaller, Decompress: true}} {
		if cfg.Compress != CompressNever && !frame.CanCompress {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for i, at := range places {
				a, b := devicePair(t, cfg)
				n := stageSizes[len(stageSizes)-1] + 100
				near, far := newStock(a, at[0], n), newStock(b, at[1], n)
				key := a.imported(far.key, n)
				for _, size := range stageSizes {
					for _, flags := range []fabric.OpFlags{0, fabric.OpRemoteData} {
						near.fill(i + 1)
						far.fill(i + 100)
						what := fmt.Sprintf("%d bytes from %d to %d", size, at[0], at[1])
						op := fabric.Op{Kind: fabric.OpWrite, Flags: flags, Data: 42, Seg: near.seg(17, uint64(size)), RSeg: fabric.RSeg{Addr: 33, Len: uint64(size), Key: key}}
						a.must(a.do(op)[0])
						copy(far.model[33:33+size], near.model[17:])
						far.check("write " + what)
						if flags != 0 {
							got := make([]fabric.Completion, 1)
							_, err := b.cq.Wait(b.ctx, got)
							b.must(err)
							if got[0].Kind != fabric.OpRemoteWrite || got[0].Data != 42 || got[0].Len != uint64(size) {
								t.Errorf("%s: got %+v", what, got[0])
							}
							continue
						}
						far.fill(i + 50)
						op.Kind = fabric.OpRead
						a.must(a.do(op)[0])
						copy(near.model[17:17+size], far.model[33:])
						near.check("read " + what)
					}
				}
			}
		})
	}
}

// TestStagedScattered moves lists of segments that alternate between a device and the host. The
// lists are cut differently on both sides, and many ops run at once.
func TestStagedScattered(t *testing.T) {
	a, b := devicePair(t, Config{Links: 2})
	r := rand.New(rand.NewPCG(1, 2))
	const n = 3 << 20
	host, near, far := newStock(a, -1, n), newStock(a, 0, n), newStock(b, 1, n)
	key := a.imported(far.key, n)
	for round := range 6 {
		host.fill(round)
		near.fill(round + 10)
		far.fill(round + 20)
		kind := []fabric.OpKind{fabric.OpWrite, fabric.OpRead}[round%2]
		mixed := round >= 2
		var ops []fabric.Op
		at, to := 0, 0
		for len(ops) < 20 {
			op := fabric.Op{Kind: kind}
			total := 0
			for range 1 + r.IntN(60) {
				k := r.IntN(1000) * r.IntN(3)
				from := near
				if mixed && r.IntN(2) == 0 {
					from = host
				}
				op.More = append(op.More, from.seg(uint64(at), uint64(k)))
				if kind == fabric.OpWrite {
					copy(far.model[to+total:], from.model[at:at+k])
				} else {
					copy(from.model[at:at+k], far.model[to+total:])
				}
				at += k
				total += k
			}
			for left := total; left > 0; {
				k := min(left, 1+r.IntN(700))
				op.RMore = append(op.RMore, fabric.RSeg{Addr: uint64(to), Len: uint64(k), Key: key})
				to += k
				left -= k
			}
			op.RSeg.Key = key
			op.RSeg.Addr = uint64(to)
			ops = append(ops, op)
		}
		for _, err := range a.do(ops...) {
			a.must(err)
		}
		for _, s := range []*stock{host, near, far} {
			s.check(fmt.Sprintf("%v in round %d", kind, round))
		}
	}
}

// TestStagedRefused submits invalid ops.
func TestStagedRefused(t *testing.T) {
	a, b := devicePair(t, Config{})
	const n = 3 << 20
	near, far, other := newStock(a, 0, n), newStock(b, 0, n), newStock(a, 1, n)
	key := a.imported(far.key, n)
	long := a.imported(far.key, 2*n) // the owner announced too large a region
	remote := func(n uint64) fabric.RSeg { return fabric.RSeg{Len: n, Key: key} }
	near.fill(1)
	far.fill(2)
	for name, c := range map[string]struct {
		op   fabric.Op
		want error
	}{
		"a message":           {fabric.Op{Kind: fabric.OpSend, Seg: near.seg(0, 8)}, fabric.ErrNotSupported},
		"a receive":           {fabric.Op{Kind: fabric.OpRecv, Seg: near.seg(0, 8)}, fabric.ErrNotSupported},
		"an injected write":   {fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpInject, Seg: near.seg(0, 8), RSeg: remote(8)}, fabric.ErrNotSupported},
		"no descriptor":       {fabric.Op{Kind: fabric.OpWrite, Seg: fabric.Seg{Addr: near.addr, Len: 8, MR: 999}, RSeg: remote(8)}, fabric.ErrNoMR},
		"beyond its region":   {fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(n-7, 8), RSeg: remote(8)}, fabric.ErrRange},
		"before its region":   {fabric.Op{Kind: fabric.OpRead, Seg: fabric.Seg{Addr: near.addr - 1, Len: 8, MR: near.mr.Desc()}, RSeg: remote(8)}, fabric.ErrRange},
		"two devices' memory": {fabric.Op{Kind: fabric.OpRead, Seg: near.seg(0, 4), More: []fabric.Seg{other.seg(0, 4)}, RSeg: remote(8)}, fabric.ErrNotSupported},
	} {
		if near.dev == other.dev && name == "two devices' memory" {
			continue
		}
		if _, err := a.ep.Submit([]fabric.Op{c.op}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		op   fabric.Op
		want error
	}{
		"beyond the peer's region":         {fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(0, 2<<20), RSeg: fabric.RSeg{Addr: 2 << 20, Len: 2 << 20, Key: key}}, fabric.ErrRange},
		"beyond what it is, read":          {fabric.Op{Kind: fabric.OpRead, Seg: near.seg(0, 8), RSeg: fabric.RSeg{Addr: n, Len: 8, Key: long}}, fabric.ErrRange},
		"beyond what it is, written":       {fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(0, 8), RSeg: fabric.RSeg{Addr: n, Len: 8, Key: long}}, fabric.ErrRange},
		"a region that is not, in pieces":  {fabric.Op{Kind: fabric.OpRead, Seg: near.seg(0, 2<<20), RSeg: fabric.RSeg{Len: 2 << 20, Key: a.imported(fabric.RegionKey{ID: 9999}, n)}}, fabric.ErrNoKey},
		"a region that is not, written to": {fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(0, 2<<20), RSeg: fabric.RSeg{Len: 2 << 20, Key: a.imported(fabric.RegionKey{ID: 9998}, n)}}, fabric.ErrNoKey},
	} {
		if err := a.do(c.op)[0]; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	sum := fabric.Op{Kind: fabric.OpAtomic, Seg: fabric.Seg{Addr: newStock(a, -1, 8).addr, Len: 8}, RSeg: fabric.RSeg{Len: 8, Key: key}, Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64}}
	if err := a.do(sum)[0]; !errors.Is(err, fabric.ErrNotSupported) {
		t.Errorf("an atomic op on device memory: %v", err)
	}
	near.check("refused")
	far.check("refused")
	a.must(a.do(fabric.Op{Kind: fabric.OpWrite, Seg: near.seg(0, n), RSeg: remote(n)})[0])
	copy(far.model, near.model)
	far.check("after all that")
}
