// SPDX-License-Identifier: MIT

package tcp_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/tcp"
)

func TestFabricWithPackedPayload(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs with plain payload, too")
	}
	var packed atomic.Uint64
	fabrictest.Test(t, func(testing.TB) fabric.Provider { return tcp.NewPacking(tcp.Options{Packed: &packed}) }, fabric.EPMsg, fabric.EPRDM)
	if packed.Load() == 0 {
		t.Error("nothing was packed")
	}
	t.Logf("%d payloads were packed", packed.Load())
}

// fill fills b with blocks that compress and blocks that do not.
func fill(b []byte, rng *rand.Rand, block int, random func() bool) {
	for ; len(b) > 0; b = b[min(block, len(b)):] {
		part := b[:min(block, len(b))]
		mask := byte(3)
		if random() {
			mask = 0xff
		}
		for i := range part {
			part[i] = byte(rng.Uint32()) & mask
		}
	}
}

func TestPackedPayloadArrivesAsItWas(t *testing.T) {
	const n = 6 << 20
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		name   string
		random func() bool
		packed bool
	}{
		{"bytes of which a quarter is left", func() bool { return false }, true},
		{"bytes that do not get smaller", func() bool { return true }, false},
		{"both by turns", func() bool { return rng.IntN(4) == 0 }, true},
	} {
		for name, cut := range map[string]int{"from the least length on": 64 << 10, "of odd lengths": 100_003, "by best ops": 1 << 20, "beyond the largest": n} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				var packed atomic.Uint64
				p := tcp.NewPacking(tcp.Options{Packed: &packed, Sums: true})
				a, b := newSide(t, p), newSide(t, p)
				connect(t, a, b)
				src, dst, back := alloc(t, n), alloc(t, n), alloc(t, n)
				fill(src, rng, 16<<10, c.random)
				key := share(t, b, a, dst)
				for _, move := range []struct {
					kind fabric.OpKind
					mem  []byte
				}{{fabric.OpWrite, src}, {fabric.OpRead, back}} {
					ops := cutOps(move.kind, move.mem, key, cut)
					before := packed.Load()
					submit(t, a, ops...)
					wait(t, a, len(ops))
					if got := packed.Load() > before; got != (c.packed && cut <= 4<<20) {
						t.Errorf("%v: %d payloads were packed", move.kind, packed.Load()-before)
					}
				}
				if !bytes.Equal(src, dst) || !bytes.Equal(dst, back) {
					t.Fatal("the bytes differ")
				}
			})
		}
	}
}

// cutOps returns ops that move mem, each of cut bytes, with segments of odd lengths on both sides.
func cutOps(kind fabric.OpKind, mem []byte, key uint64, cut int) (ops []fabric.Op) {
	for at := 0; at < len(mem); at += cut {
		n := min(cut, len(mem)-at)
		l, r := n/3, n/5
		ops = append(ops, fabric.Op{Kind: kind, Seg: seg(mem[at : at+l]), More: []fabric.Seg{seg(mem[at+l : at+n])},
			RSeg:  fabric.RSeg{Addr: uint64(at), Len: uint64(r), Key: key},
			RMore: []fabric.RSeg{{Addr: uint64(at + r), Len: uint64(n - r), Key: key}}})
	}
	return ops
}

// BenchmarkCompressOnLoopback shows that payload is not compressed on a fast connection. packed is
// the share of payloads that were compressed nevertheless.
func BenchmarkCompressOnLoopback(b *testing.B) {
	const blocks, block = 128, 1 << 20
	for _, c := range []struct {
		name string
		mask byte
	}{{"zeros", 0}, {"a-half", 15}, {"random", 255}} {
		for _, on := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/compress=%v", c.name, on), func(b *testing.B) {
				p := startPeer(b)
				var packed atomic.Uint64
				s, key := p.join(b, tcp.Options{Compress: on, Packed: &packed})
				src := alloc(b, blocks*block)
				rng := rand.New(rand.NewPCG(1, 1))
				for i := range src {
					src[i] = byte(rng.Uint32()) & c.mask
				}
				ops := blockOps(src, key, fabric.OpWrite, blocks, block, 1)
				b.SetBytes(int64(len(src)))
				b.ResetTimer()
				for range b.N {
					submit(b, s, ops...)
					wait(b, s, len(ops))
				}
				b.ReportMetric(float64(packed.Load())/float64(b.N*blocks), "packed")
			})
		}
	}
}
