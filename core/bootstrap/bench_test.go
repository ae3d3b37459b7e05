// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// pingPong is the median time of a round trip of n bytes between two goroutines over loopback TCP,
// which is the raw limit of a call of two ranks.
func pingPong(b *testing.B, n int) time.Duration {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, n)
		for {
			if _, err := io.ReadFull(c, buf); err != nil {
				return
			}
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, n)
	const rounds = 2000
	start := time.Now()
	for range rounds {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / rounds
}

// benchCalls runs call at all ranks of groups in this process, and compares with a ping-pong of the
// same length before and after.
func benchCalls(b *testing.B, size, blob int, call func(Group, []byte) error) {
	groups := joinAll(b, size, Options{})
	before := pingPong(b, headSize+blob)
	b.ResetTimer()
	start := time.Now()
	if err := errors.Join(each(groups, func(g Group) error {
		mine := make([]byte, blob)
		for range b.N {
			if err := call(g, mine); err != nil {
				return err
			}
		}
		return nil
	})...); err != nil {
		b.Fatal(err)
	}
	each1 := time.Since(start) / time.Duration(b.N)
	b.StopTimer()
	raw := min(before, pingPong(b, headSize+blob))
	b.ReportMetric(float64(raw.Nanoseconds()), "pingpong-ns")
	b.ReportMetric(float64(each1)/float64(raw), "x-pingpong")
}

func BenchmarkBarrier(b *testing.B) {
	for _, size := range []int{2, 8, 64} {
		b.Run(fmt.Sprintf("%d ranks", size), func(b *testing.B) {
			benchCalls(b, size, 0, func(g Group, _ []byte) error { return g.Barrier(context.Background()) })
		})
	}
}

func BenchmarkAllGather(b *testing.B) {
	for _, size := range []int{2, 8, 64} {
		for _, blob := range []int{128, 64 << 10} {
			b.Run(fmt.Sprintf("%d ranks of %d bytes", size, blob), func(b *testing.B) {
				benchCalls(b, size, blob, func(g Group, mine []byte) error {
					_, err := g.AllGather(context.Background(), mine)
					return err
				})
			})
		}
	}
}

// BenchmarkStart starts processes that join, exchange once and leave.
func BenchmarkStart(b *testing.B) {
	for _, size := range []int{8, 64, 256} {
		b.Run(fmt.Sprintf("%d processes", size), func(b *testing.B) {
			for range b.N {
				joined, _ := startMany(b, size)
				b.ReportMetric(joined.Seconds(), "s-joined")
			}
		})
	}
}

// BenchmarkJoin joins as all ranks in one process.
func BenchmarkJoin(b *testing.B) {
	for _, size := range []int{2, 8, 64} {
		b.Run(fmt.Sprintf("%d ranks", size), func(b *testing.B) {
			for range b.N {
				closeAll(joinAll(b, size, Options{}))
			}
		})
	}
}
