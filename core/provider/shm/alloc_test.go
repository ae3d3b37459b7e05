// SPDX-License-Identifier: MIT

//go:build !race

package shm

import (
	"testing"

	"mori/core/fabric"
)

func TestSmallOpsDoNotAllocate(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		lendRegion(t, b, 1, 4096, allRights)
		local, _ := memory(t, 4096)
		op := rmaOp(fabric.OpWrite, local[:8], 0)
		a.mover.RMA(1, op, regionKey(1))
		if err := a.wait(t, 1); err != nil {
			t.Fatal(err)
		}
		l := a.mover.loans[regionKey(1)]
		if n := testing.AllocsPerRun(200, func() {
			if err := a.mover.copyNow(op, 8, l); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("a small write allocates %v times", n)
		}
	})
}

func TestSubmitAndReadDoNotAllocate(t *testing.T) {
	p := startTarget(t, Options{})
	local, _ := memory(t, 4096)
	done := make([]fabric.Completion, 4)
	for _, flags := range []fabric.OpFlags{0, fabric.OpRemoteData} {
		op := p.op(fabric.OpWrite, local[:8])
		op.Flags = flags
		ops := []fabric.Op{op}
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := p.ep.Submit(ops); err != nil {
				t.Fatal(err)
			}
			for n, err := p.cq.Read(done); n == 0; n, err = p.cq.Read(done) {
				if err != nil && err != fabric.ErrAgain {
					t.Fatal(err)
				}
			}
		}); n > 0.05 {
			t.Errorf("a small write with flags %d allocates %v times", flags, n)
		}
	}
}
