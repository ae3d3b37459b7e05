// SPDX-License-Identifier: MIT

package p2p

import (
	"testing"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/pathbase"
	"mori/native/gpu/gputest"
)

// An op of many blocks and a small one allocate nothing once the endpoint has seen such.
func TestOpsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newPair(t, Options{})
	const blocks, size = 50, 64
	for _, r := range []route{{0, 1}, {-1, 0}} {
		gputest.Need(t, 1+max(r.local, r.remote))
		local, remote := a.memory(t, r.local, 0, 2*blocks*size), b.memory(t, r.remote, 0, blocks*size)
		key := a.imports(t, remote.mr.Raw())
		list := fabric.Op{Kind: fabric.OpWrite, RSeg: fabric.RSeg{Len: blocks * size, Key: key}}
		for i := range uint64(blocks) {
			list.More = append(list.More, local.seg(2*i*size, size))
		}
		var even fabric.Blocks
		at := make([]uint64, blocks)
		for i := range at {
			at[i] = uint64(i) * size
		}
		ok(t, even.Set(size, at, at))
		same := fabric.Op{Kind: fabric.OpWrite, Blocks: &even, Seg: local.seg(0, blocks*size), RSeg: list.RSeg}
		small := fabric.Op{Kind: fabric.OpRead, Seg: local.seg(0, 8), RSeg: fabric.RSeg{Len: 8, Key: key}}
		ops, done := []fabric.Op{list, same, small}, make([]fabric.Completion, 4)
		round := func() {
			if n, err := a.ep.Submit(ops); n != len(ops) || err != nil {
				t.Fatal(n, err)
			}
			for left := len(ops); left > 0; {
				n, err := a.cq.Wait(a.ctx, done)
				if err != nil {
					t.Fatal(err)
				}
				left -= n
			}
		}
		for range 20 {
			round()
		}
		if n := testing.AllocsPerRun(50, round); n >= 1 {
			t.Errorf("%v: %v allocations in %d ops", r, n, len(ops))
		}
	}
}

// BenchmarkList is what a list of 8192 blocks costs before the launch, as segments. As blocks it is
// a copy of the offsets: core/device has that.
func BenchmarkList(b *testing.B) {
	a, _ := newPair(b, Options{})
	const blocks, size = 8192, 64
	local := a.memory(b, 0, 0, 2*blocks*size)
	op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, size), RSeg: fabric.RSeg{Len: size}}
	for i := range uint64(blocks - 1) {
		op.More = append(op.More, local.seg(2*i*size, size))
		op.RMore = append(op.RMore, fabric.RSeg{Addr: i * size, Len: size})
	}
	dp := &dataPath{domain: &domain{table: a.dom.(*conn.Domain).MRs()}}
	d, err := pathbase.DeviceOf(local.Buffer)
	ok(b, err)
	c, err := d.NewCopier(device.CopierOptions{})
	ok(b, err)
	defer func() { ok(b, c.Close()) }()
	x := &payload{path: dp, copyJob: copyJob{lane: &lane{copier: c}}}
	for b.Loop() {
		ok(b, x.list(&op, 1<<40, true))
	}
	x.release()
}
