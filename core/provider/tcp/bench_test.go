// SPDX-License-Identifier: MIT

package tcp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/tcp"
)

// The benchmarks run against a second process and measure plain blocking sockets in the same loop,
// alternating with ours. x-raw is a ratio of medians: for bandwidth, plain time over our time (1 is
// as fast as plain); for latency, our time over plain time.

// plainFD takes the descriptor out of c, in blocking mode, so that the plain side does not use Go's
// network poller.
func plainFD(c net.Conn) int {
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		panic(err)
	}
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		panic(err)
	}
	_ = f.Close()
	_ = c.Close()
	if err := syscall.SetNonblock(fd, false); err != nil {
		panic(err)
	}
	return fd
}

func plainRead(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Read(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

func plainWrite(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b[:min(len(b), 1<<20)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

func plainDial(tb testing.TB, p *peer, size uint64) int {
	tb.Helper()
	c := must[net.Conn](tb)(net.Dial("tcp", p.hello.Sock))
	fd := plainFD(c)
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	var h [8]byte
	binary.BigEndian.PutUint64(h[:], size)
	if !plainWrite(fd, h[:]) {
		tb.Fatal("plain socket broke")
	}
	return fd
}

// plainStream returns a function that sends src over conns connections at once.
func plainStream(tb testing.TB, p *peer, src []byte, conns int) func() {
	part := len(src) / conns
	fds := make([]int, conns)
	for i := range fds {
		fds[i] = plainDial(tb, p, uint64(part))
	}
	return func() {
		done := make(chan bool, conns)
		for i, fd := range fds {
			go func() {
				var b [1]byte
				done <- plainWrite(fd, src[i*part:][:part]) && plainRead(fd, b[:])
			}()
		}
		for range fds {
			if !<-done {
				tb.Fatal("plain socket broke")
			}
		}
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func timed(fn func()) time.Duration {
	t := time.Now()
	fn()
	return time.Since(t)
}

// blockOps cuts shuffled blocks of src and of the region into ops of per segments each.
func blockOps(src []byte, key uint64, kind fabric.OpKind, blocks, block, per int) []fabric.Op {
	l, r := rand.Perm(blocks), rand.Perm(blocks)
	var ops []fabric.Op
	for i := range blocks {
		ls := fabric.Seg{Addr: seg(src).Addr + uint64(l[i]*block), Len: uint64(block)}
		rs := fabric.RSeg{Addr: uint64(r[i] * block), Len: uint64(block), Key: key}
		if i%per == 0 {
			ops = append(ops, fabric.Op{Kind: kind, Seg: ls, RSeg: rs})
			continue
		}
		op := &ops[len(ops)-1]
		op.More, op.RMore = append(op.More, ls), append(op.RMore, rs)
	}
	return ops
}

func BenchmarkBandwidth(b *testing.B) {
	for _, c := range []struct {
		name               string
		kind               fabric.OpKind
		blocks, block, per int
	}{
		{"write-128x1MiB", fabric.OpWrite, 128, 1 << 20, 1},
		{"read-128x1MiB", fabric.OpRead, 128, 1 << 20, 1},
		{"write-1024x4KiB", fabric.OpWrite, 1024, 4 << 10, 128},
		{"write-1024x4KiB-by-256", fabric.OpWrite, 1024, 4 << 10, 256},
		{"read-1024x4KiB", fabric.OpRead, 1024, 4 << 10, 256},
	} {
		for _, links := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/%d-links", c.name, links), func(b *testing.B) {
				p := startPeer(b)
				s, key := p.join(b, tcp.Options{Links: links})
				src := alloc(b, c.blocks*c.block)
				clearPages(src)
				ops := blockOps(src, key, c.kind, c.blocks, c.block, c.per)
				var plain [3]func()
				for i, conns := range []int{1, 2, 4} {
					plain[i] = plainStream(b, p, src, conns)
				}
				var ours []time.Duration
				var raw [3][]time.Duration
				b.SetBytes(int64(len(src)))
				for range b.N {
					ours = append(ours, timed(func() { submit(b, s, ops...); wait(b, s, len(ops)) }))
					for i, fn := range plain {
						raw[i] = append(raw[i], timed(fn))
					}
				}
				best := min(median(raw[0]), median(raw[1]), median(raw[2]))
				b.ReportMetric(float64(best)/float64(median(ours)), "x-raw")
				b.ReportMetric(float64(len(src))/median(ours).Seconds()/1e9, "GB/s")
				b.ReportMetric(float64(len(src))/best.Seconds()/1e9, "raw-GB/s")
			})
		}
	}
}

func BenchmarkLatency(b *testing.B) {
	p := startPeer(b)
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		b.Run(kind.String()+"-8B", func(b *testing.B) {
			s, key := p.join(b, tcp.Options{})
			buf := alloc(b, 8)
			op := []fabric.Op{{Kind: kind, Seg: seg(buf), RSeg: fabric.RSeg{Len: 8, Key: key}}}
			fd := plainDial(b, p, 0)
			check(b, syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1))
			var ours, raw []time.Duration
			for range b.N {
				ours = append(ours, timed(func() { submit(b, s, op...); wait(b, s, 1) }))
				raw = append(raw, timed(func() { plainWrite(fd, buf); plainRead(fd, buf) }))
			}
			b.ReportMetric(float64(median(ours))/float64(median(raw)), "x-raw")
			b.ReportMetric(float64(median(ours).Nanoseconds())/1e3, "µs")
			b.ReportMetric(float64(median(raw).Nanoseconds())/1e3, "raw-µs")
		})
	}
}
