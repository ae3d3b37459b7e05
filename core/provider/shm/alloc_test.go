// SPDX-License-Identifier: MIT

//go:build !race

package shm

import (
	"testing"

	"mori/core/fabric"
	"mori/core/provider/shm/internal/ring"
)

func TestSmallOpsDoNotAllocate(t *testing.T) {
	eachWay(t, func(t *testing.T, a, b *fakeEndpoint) {
		grantRegion(t, b, 1, 4096, allRights)
		local, _ := memory(t, 4096)
		op := rmaOp(fabric.OpWrite, local[:8], 0)
		a.path.RMA(1, op, regionKey(1))
		if err := a.wait(t, 1); err != nil {
			t.Fatal(err)
		}
		l, s := a.path.holder.Find(regionKey(1)), newSlice()
		if n := testing.AllocsPerRun(200, func() {
			w := newWalk(op, 8, l.Region.base)
			w.next(s, sliceBytes)
			if err := a.path.copies.copySlice(op.Kind, l, s); err != nil {
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

// messageRound sends a message from a to b, both spinning.
func messageRound(t *testing.T, a, b *node, send, recv []fabric.Op, done []fabric.Completion) {
	if _, err := b.ep.Submit(recv); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ep.Submit(send); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{b, a} {
		for k, err := n.cq.Read(done); k == 0; k, err = n.cq.Read(done) {
			if err != fabric.ErrAgain {
				t.Fatal(err)
			}
		}
	}
}

func TestMessagesDoNotAllocate(t *testing.T) {
	for name, opts := range map[string]Options{"cma": {kernel: true}, "memmove": {}} {
		a, b := connectNodes(t, opts)
		src, from := memory(t, 1<<20)
		_, to := memory(t, 1<<20)
		done := make([]fabric.Completion, 4)
		for _, n := range []int{0, 64, ring.InlineMessage, 1 << 20} {
			send := []fabric.Op{{Kind: fabric.OpSend, Seg: fabric.Seg{Addr: from, Len: uint64(n)}}}
			recv := []fabric.Op{{Kind: fabric.OpRecv, Seg: fabric.Seg{Addr: to, Len: uint64(len(src))}}}
			if k := testing.AllocsPerRun(1000, func() { messageRound(t, a, b, send, recv, done) }); k > 0.05 {
				t.Errorf("%s: a message of %d bytes allocates %v times", name, n, k)
			}
		}
	}
}
