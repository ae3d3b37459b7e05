// SPDX-License-Identifier: MIT

package tcp_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/tcp"
	"mori/native/gpu/gputest"
)

// deviceInfo returns the Info of a domain that accepts device memory.
func deviceInfo() *fabric.Info {
	return &fabric.Info{Provider: "tcp", Caps: fabric.CapMSG | fabric.CapRMA | fabric.CapHMEM, MRMode: fabric.MRHMEM}
}

var memKinds = map[device.Vendor]fabric.MemKind{device.CUDA: fabric.MemCUDA, device.HIP: fabric.MemHIP}

// deviceMemory allocates n bytes on the i-th device, or on the last one. The caller closes the
// memory.
func deviceMemory(i int, n uint64) (fabric.Buffer, *device.Memory, error) {
	all, err := device.Devices()
	if err != nil {
		return fabric.Buffer{}, nil, err
	}
	d := all[min(i, len(all)-1)]
	m, err := d.Alloc(n)
	if err != nil {
		return fabric.Buffer{}, nil, err
	}
	return fabric.Buffer{Addr: m.Addr(), Len: n, Kind: memKinds[d.Vendor], Device: d.Ordinal}, m, nil
}

// joinOn connects a side with n bytes of the first device to the peer.
func (p *peer) joinOn(tb testing.TB, opts tcp.Options, n uint64) (s *side, local fabric.Seg, key uint64) {
	tb.Helper()
	s = newSideAs(tb, tcp.New(opts), deviceInfo(), 4096)
	_, err := s.ep.(fabric.Connector).Connect(testContext(tb), p.hello.Addr, nil)
	check(tb, err)
	must[fabric.Event](tb)(s.eq.Wait(testContext(tb)))
	buf, mem, err := deviceMemory(0, n)
	check(tb, err)
	tb.Cleanup(func() { check(tb, mem.Close()) })
	mr := must[fabric.MR](tb)(s.dom.Reg(buf, fabric.AccessRemoteRead|fabric.AccessRemoteWrite, fabric.RegionKey{ID: 7}))
	tb.Cleanup(func() { check(tb, mr.Close()) })
	return s, fabric.Seg{Addr: buf.Addr, Len: n, MR: mr.Desc()}, imported(tb, s, p.hello.Raw)
}

// BenchmarkDevice moves 64 MiB between devices of two processes: in ops of 1 MiB, in one op, and in
// blocks of 4 KiB. It compares with plain sockets that move host memory. x-raw is the ratio of the
// medians.
func BenchmarkDevice(b *testing.B) {
	gputest.Need(b)
	const n = 64 << 20
	for _, c := range []struct {
		name       string
		kind       fabric.OpKind
		op, blocks int
	}{
		{"write-64x1MiB", fabric.OpWrite, 1 << 20, 1},
		{"read-64x1MiB", fabric.OpRead, 1 << 20, 1},
		{"write-1x64MiB", fabric.OpWrite, n, 1},
		{"write-4KiB-blocks", fabric.OpWrite, 1 << 20, 256},
	} {
		for _, links := range []int{2, 4} {
			b.Run(fmt.Sprintf("%s/%d-links", c.name, links), func(b *testing.B) {
				p := startPeerOn(b, onDevice)
				s, local, key := p.joinOn(b, tcp.Options{Links: links}, n)
				ops := deviceOps(c.kind, local, key, c.op, c.blocks)
				src := alloc(b, n)
				clearPages(src)
				var plain [3]func()
				for i, conns := range []int{1, 2, 4} {
					plain[i] = plainStream(b, p, src, conns)
				}
				var ours []time.Duration
				var raw [3][]time.Duration
				b.SetBytes(n)
				for range b.N {
					ours = append(ours, timed(func() { submit(b, s, ops...); wait(b, s, len(ops)) }))
					for i, fn := range plain {
						raw[i] = append(raw[i], timed(fn))
					}
				}
				best := min(median(raw[0]), median(raw[1]), median(raw[2]))
				b.ReportMetric(float64(best)/float64(median(ours)), "x-raw")
				b.ReportMetric(n/median(ours).Seconds()/1e9, "GB/s")
				b.ReportMetric(n/best.Seconds()/1e9, "raw-GB/s")
			})
		}
	}
}

// deviceOps cuts all of local into ops of this many bytes, in blocks that are shuffled in local.
func deviceOps(kind fabric.OpKind, local fabric.Seg, key uint64, bytes, blocks int) []fabric.Op {
	var ops []fabric.Op
	block := uint64(bytes / blocks)
	for at := uint64(0); at < local.Len; at += uint64(bytes) {
		op := fabric.Op{Kind: kind}
		for i := range uint64(blocks) {
			l := fabric.Seg{Addr: local.Addr + at + (i*7%uint64(blocks))*block, Len: block, MR: local.MR}
			r := fabric.RSeg{Addr: at + i*block, Len: block, Key: key}
			if i == 0 {
				op.Seg, op.RSeg = l, r
			} else {
				op.More, op.RMore = append(op.More, l), append(op.RMore, r)
			}
		}
		ops = append(ops, op)
	}
	return ops
}

// TestDevicePeerKilled kills the peer while device memory moves in both directions. Every op ends,
// regions close, and the next peer works.
func TestDevicePeerKilled(t *testing.T) {
	gputest.Need(t)
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		p := startPeerOn(t, onDevice)
		s, local, key := p.joinOn(t, tcp.Options{}, 32<<20)
		ops := deviceOps(kind, local, key, 1<<20, 4)
		submit(t, s, ops...)
		wait(t, s, 1)
		check(t, p.cmd.Process.Kill())
		failed := 0
		for range len(ops) - 1 {
			if err := waitOne(s); err != nil {
				if !errors.Is(err, fabric.ErrConnReset) {
					t.Errorf("%v: %v", kind, err)
				}
				failed++
			}
		}
		t.Logf("%v: %d of %d ops failed", kind, failed, len(ops))
	}
}

// waitOne waits for one completion.
func waitOne(s *side) error {
	var c [1]fabric.Completion
	_, err := s.cq.Wait(s.ctx, c[:])
	if !errors.Is(err, fabric.ErrAvail) {
		return err
	}
	var e fabric.ErrEntry
	if err := s.cq.ReadErr(&e); err != nil {
		return err
	}
	return &e
}
