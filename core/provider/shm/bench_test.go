// SPDX-License-Identifier: MIT

package shm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
)

// The raw side of a benchmark is a plain loop of system calls on the same memory of the same
// process, alternating with ours. x-raw is raw time over our time, both medians.
func versusRaw(b *testing.B, bytes int64, raw, ours func()) {
	b.Helper()
	b.SetBytes(bytes)
	raw()
	ours()
	var rawTimes, ourTimes []time.Duration
	for b.Loop() {
		begin := time.Now()
		raw()
		middle := time.Now()
		ours()
		rawTimes, ourTimes = append(rawTimes, middle.Sub(begin)), append(ourTimes, time.Since(middle))
	}
	slices.Sort(rawTimes)
	slices.Sort(ourTimes)
	r, o := rawTimes[len(rawTimes)/2], ourTimes[len(ourTimes)/2]
	b.ReportMetric(float64(r)/float64(o), "x-raw")
	b.ReportMetric(float64(r.Nanoseconds()), "raw-ns")
	b.ReportMetric(float64(o.Nanoseconds()), "our-ns")
	b.ReportMetric(0, "ns/op")
}

func (p *target) submitAll(ops []fabric.Op, done []fabric.Completion) {
	for left := len(ops); len(ops) > 0 || left > 0; {
		if len(ops) > 0 {
			n, err := p.ep.Submit(ops)
			if err != nil && err != fabric.ErrAgain {
				p.tb.Fatal(err)
			}
			ops = ops[n:]
		}
		n, err := p.cq.Read(done)
		if err == fabric.ErrAgain {
			n, err = p.cq.Wait(context.Background(), done)
		}
		if err != nil {
			p.tb.Fatal(err)
		}
		left -= n
	}
}

func BenchmarkRMA(b *testing.B) {
	p := startTarget(b, Options{})
	pid, base := p.cmd.Process.Pid, p.base
	local, laddr := memory(b, regionBytes)
	for i := range local {
		local[i] = byte(i)
	}
	if err := p.run(p.op(fabric.OpWrite, local)); err != nil {
		b.Fatal(err)
	}
	done := make([]fabric.Completion, 256)
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		move := vm.Read
		if kind == fabric.OpWrite {
			move = vm.Write
		}
		rawLoop := func(local, remote []sys.Iovec, step int) {
			l, r := make([]sys.Iovec, step), make([]sys.Iovec, step)
			for i := 0; i < len(local); i += step {
				copy(l, local[i:i+step])
				copy(r, remote[i:i+step])
				if _, err := move(pid, l, r); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, tt := range []struct {
			blocks, size, step, perOp int
		}{{64, 1 << 20, 1, 8}, {1024, 4096, 1024, 1024}, {1, 8, 1, 1}, {1, 65536, 1, 1}, {1, 1 << 20, 1, 1}, {16, 64, 16, 16}} {
			b.Run(fmt.Sprintf("%v/%dx%d", kind, tt.blocks, tt.size), func(b *testing.B) {
				at := rand.New(rand.NewPCG(1, 2)).Perm(regionBytes / max(tt.size, 4096))
				ops := make([]fabric.Op, tt.blocks/tt.perOp)
				var l, r []sys.Iovec
				for i := range tt.blocks {
					lo, ro := uint64(i*tt.size), uint64(at[i]*max(tt.size, 4096))
					l, r = append(l, sys.Iovec{Addr: laddr + lo, Len: uint64(tt.size)}), append(r, sys.Iovec{Addr: base + ro, Len: uint64(tt.size)})
					op := &ops[i/tt.perOp]
					seg, rseg := fabric.Seg{Addr: laddr + lo, Len: uint64(tt.size)}, fabric.RSeg{Addr: ro, Len: uint64(tt.size), Key: p.key}
					if i%tt.perOp == 0 {
						*op = fabric.Op{Kind: kind, Seg: seg, RSeg: rseg}
					} else {
						op.More, op.RMore = append(op.More, seg), append(op.RMore, rseg)
					}
				}
				versusRaw(b, int64(tt.blocks*tt.size), func() { rawLoop(l, r, tt.step) }, func() { p.submitAll(ops, done) })
			})
		}
	}
}
