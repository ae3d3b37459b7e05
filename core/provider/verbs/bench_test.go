// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

// A rawPair is two connected queue pairs of a device, without any of this package's work on ops.
type rawPair struct {
	nic  *nic
	cq   verbs.CQ
	qps  [2]verbs.QP
	nums [2]uint32
	mrs  [2]verbs.MR
	keys [2]verbs.Keys
	wcs  []verbs.WC
}

// newRaw connects them, for memory of the two ends.
func newRaw(b *testing.B, local, remote *memory) *rawPair {
	b.Helper()
	devices, err := verbs.Devices()
	ok(b, err)
	n, err := openNIC(devices[0].Name, &Settings{GIDIndex: -1, NoEvents: true}, quiet)
	ok(b, err)
	r := &rawPair{nic: n, wcs: make([]verbs.WC, 16)}
	b.Cleanup(func() {
		ok(b, errors.Join(r.qps[0].Close(), r.qps[1].Close(), r.mrs[0].Close(), r.mrs[1].Close(), r.cq.Close(), n.close()))
	})
	r.cq, err = n.ctx.NewCQ(256, 0, 0)
	ok(b, err)
	for i, m := range []*memory{local, remote} {
		r.qps[i], r.nums[i], _, err = n.pd.NewQP(verbs.QPInit{SendCQ: r.cq, RecvCQ: r.cq, SendWR: 128, RecvWR: 1, SendSGE: 1, RecvSGE: 1})
		ok(b, err)
		r.mrs[i], r.keys[i], err = n.pd.RegMR(m.Addr, m.Len, m.Addr, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
		ok(b, err)
	}
	gid, err := n.address(nil)
	ok(b, err)
	for i, q := range r.qps {
		ok(b, q.Init(n.port, verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessLocalWrite))
		ok(b, q.RTR(verbs.RTR{
			MTU: n.link.MTU, DestQP: r.nums[1-i], PSN: 1, Port: n.port, GIDIndex: gid.Index, GID: gid.GID, LID: n.link.LID,
			Global: n.link.LinkLayer == verbs.LinkEthernet, HopLimit: hopLimit, MaxDestRdAtomic: 4, MinRNRTimer: minRNRTimer,
		}))
		ok(b, q.RTS(verbs.RTS{PSN: 1, Timeout: 18, Retries: 7, RNRRetries: rnrForever, MaxRdAtomic: 4}))
	}
	return r
}

// median is the time of a round of count blocks, posted with one call and polled for without rest.
func (r *rawPair) median(b *testing.B, kind fabric.OpKind, local, remote *memory, count, size uint64) time.Duration {
	b.Helper()
	op := verbs.OpWrite
	if kind == fabric.OpRead {
		op = verbs.OpRead
	}
	var wrs []verbs.SendWR
	var sges []verbs.SGE
	for i := range count {
		sges = append(sges, verbs.SGE{Addr: local.Addr + 2*i*size, Len: uint32(size), LKey: r.keys[0].Local})
		wrs = append(wrs, verbs.SendWR{Op: op, RemoteAddr: remote.Addr + 2*i*size, RKey: r.keys[1].Remote, First: uint32(i), Count: 1})
	}
	wrs[count-1].Flags = verbs.Signaled
	var all []time.Duration
	for range 100 {
		begun := time.Now()
		_, err := r.qps[0].PostSend(wrs, sges)
		ok(b, err)
		for n := 0; n == 0; {
			if n, err = r.cq.Poll(r.wcs); err != nil || n == 1 && r.wcs[0].Status != verbs.StatusSuccess {
				b.Fatal(r.wcs[0].Status, err)
			}
		}
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkWrite is the time of one write and the wait for it, next to raw posts and polls of the
// same work requests.
func BenchmarkWrite(b *testing.B) { benchmarkOps(b, fabric.OpWrite) }

// BenchmarkRead is the same of reads.
func BenchmarkRead(b *testing.B) { benchmarkOps(b, fabric.OpRead) }

func benchmarkOps(b *testing.B, kind fabric.OpKind) {
	for _, c := range []struct{ count, size uint64 }{{1, 4 << 10}, {1, 1 << 20}, {64, 4 << 10}} {
		b.Run(fmt.Sprintf("%dx%dKiB", c.count, c.size>>10), func(b *testing.B) {
			verbstest.Need(b)
			x, y := newEnds(b, way{})
			local, remote := x.memory(b, 2*c.count*c.size), y.memory(b, 2*c.count*c.size)
			ops := []fabric.Op{blocks(kind, local, x.imports(b, remote.mr), c.count, c.size)}
			done := make([]fabric.Completion, 1)
			for range 20 {
				x.round(b, ops, done)
			}
			bare := newRaw(b, local, remote)
			raw := bare.median(b, kind, local, remote, c.count, c.size)
			b.SetBytes(int64(c.count * c.size))
			b.ReportAllocs()
			var all []time.Duration
			b.ResetTimer()
			for range b.N {
				begun := time.Now()
				x.round(b, ops, done)
				all = append(all, time.Since(begun))
			}
			b.StopTimer()
			raw = min(raw, bare.median(b, kind, local, remote, c.count, c.size)) // before or after: the machine has other things to do
			slices.Sort(all)
			median := all[len(all)/2]
			b.ReportMetric(float64(median)/1e3, "median-us")
			b.ReportMetric(float64(raw)/1e3, "raw-us")
			b.ReportMetric(float64(raw)/float64(median), "of-raw")
		})
	}
}

// BenchmarkUnregistered is the time of a write from memory that is not registered, next to the same
// write from memory that is, in turns with it.
func BenchmarkUnregistered(b *testing.B) {
	for _, size := range []uint64{1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			verbstest.Need(b)
			x, y := newEnds(b, way{})
			known, remote := x.memory(b, size), y.memory(b, size)
			other, key := unregistered(b, size), x.imports(b, remote.mr)
			known.fill(1)
			other.fill(2)
			done := make([]fabric.Completion, 1)
			var times [2][]time.Duration
			b.SetBytes(int64(size))
			b.ResetTimer()
			for i := range b.N + 5 {
				for j, m := range []*memory{known, other} {
					begun := time.Now()
					x.round(b, []fabric.Op{m.write(size, key)}, done)
					if i >= 5 {
						times[j] = append(times[j], time.Since(begun))
					}
				}
			}
			b.StopTimer()
			if path := x.reason(); path != x.path(b).rails.all[0].String() {
				b.Errorf("some op did not go by the NIC: %s", path)
			}
			slices.Sort(times[0])
			slices.Sort(times[1])
			registered, not := times[0][b.N/2], times[1][b.N/2]
			b.ReportMetric(float64(not)/1e3, "median-us")
			b.ReportMetric(float64(registered)/1e3, "registered-us")
			b.ReportMetric(float64(registered)/float64(not), "of-registered")
		})
	}
}

// BenchmarkMessages is the time of a message into a waiting receive, next to a write of as many
// bytes, in turns with it; and, on emulated devices, to a message by TCP.
func BenchmarkMessages(b *testing.B) {
	for _, size := range []uint64{64, 4 << 10, 64 << 10, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			verbstest.Need(b)
			nic := newTalkers(b, size)
			wired(b, nic.a, nic.b)
			what := []func(testing.TB){nic.message, nic.write}
			if !verbstest.Real() {
				verbstest.Limit(b, "max_cqe=70", "max_qp_wr=30")
				tcp := newTalkers(b, size)
				verbstest.Limit(b)
				tcp.b.path(b)
				if tcp.a.path(b); !strings.Contains(tcp.a.reason(), "messages use TCP") {
					b.Fatal(tcp.a.reason())
				}
				what = append(what, tcp.message)
			}
			times := make([][]time.Duration, len(what))
			b.SetBytes(int64(size))
			b.ResetTimer()
			for i := range b.N + 5 {
				for j, once := range what {
					begun := time.Now()
					if once(b); i >= 5 {
						times[j] = append(times[j], time.Since(begun))
					}
				}
			}
			b.StopTimer()
			for j, name := range []string{"median-us", "write-us", "tcp-us"}[:len(what)] {
				slices.Sort(times[j])
				b.ReportMetric(float64(times[j][b.N/2])/1e3, name)
			}
			b.ReportMetric(float64(times[1][b.N/2])/float64(times[0][b.N/2]), "of-write")
		})
	}
}

// talkers are two ends, of which one sends and the other receives.
type talkers struct {
	a, b               *end
	send, recv, writes []fabric.Op
	done, heard        []fabric.Completion
}

func newTalkers(b *testing.B, size uint64) *talkers {
	b.Helper()
	x, y := newEnd(b, way{}), newEnd(b, way{})
	ok(b, connect(x, y))
	from, into := x.memory(b, size), y.memory(b, size)
	return &talkers{
		x, y, []fabric.Op{from.send(0, size, 1)}, []fabric.Op{{Kind: fabric.OpRecv, Seg: into.seg(0, size)}},
		[]fabric.Op{from.write(size, x.imports(b, into.mr))}, make([]fabric.Completion, 1), make([]fabric.Completion, 1),
	}
}

// message sends one and waits for both ends of it.
func (w *talkers) message(tb testing.TB) {
	if n, err := w.b.ep.Submit(w.recv); n != 1 || err != nil {
		tb.Fatal(n, err)
	}
	w.a.round(tb, w.send, w.done)
	if _, err := w.b.cq.Wait(w.b.ctx, w.heard); err != nil {
		tb.Fatal(err)
	}
}

func (w *talkers) write(tb testing.TB) { w.a.round(tb, w.writes, w.done) }
