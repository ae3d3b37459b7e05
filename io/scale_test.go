// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// held returns the number of goroutines and open descriptors of this process.
func held(t *testing.T) (goroutines, descriptors int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return runtime.NumGoroutine(), len(fds)
}

// few is the number of goroutines that may start late on a busy machine, after the first count. A
// leak of hundreds of engines would exceed it.
const few = 4

// nothingMore waits until the process holds no more than before.
func nothingMore(t *testing.T, goroutines, descriptors int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		g, d := held(t)
		if g <= goroutines+few && d <= descriptors {
			return
		}
		if time.Now().After(end) {
			var all strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
			t.Fatalf("%d goroutines and %d descriptors, before %d and %d:\n%s", g, d, goroutines, descriptors, all.String())
		}
	}
}

func TestManyEnginesInOneProcess(t *testing.T) {
	const n = 200
	g, d := held(t)
	t.Run("ring", func(t *testing.T) {
		sides := make([]*side, n)
		for i := range sides {
			sides[i] = newSide(t, fmt.Sprint("engine ", i), 4096, BackendRDMA, nil)
			fill(sides[i].mem, uint64(i))
		}
		for i, s := range sides {
			next := sides[(i+1)%n]
			succeed(t, meet(t, s, next).Write([]uint64{0}, []uint64{2048}, []uint64{2048}, 1))
			if string(next.mem[2048:]) != string(s.mem[:2048]) {
				t.Fatalf("bytes from engine %d differ", i)
			}
			arrived(t, next.Engine, s.self.Key, 1)
		}
	})
	nothingMore(t, g, d)
}

func TestTenThousandRegistrations(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, s := pair(t, 1<<16, kind, nil)
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 0))
		arrived(t, b.Engine, "a", 0) // everything that connecting starts has started
		g, d := held(t)
		_, addr := buffer(t, 4096)
		for i := range 10000 {
			desc, err := b.RegisterMemory(addr, 4096, -1, LocCPU)
			if err != nil {
				t.Fatal(err)
			}
			if i%500 == 0 {
				other, err := a.CreateSession(a.desc, desc)
				if err != nil {
					t.Fatal(err)
				}
				succeed(t, other.Write([]uint64{0}, []uint64{0}, []uint64{4096}, uint64(i)))
			}
			if err := b.DeregisterMemory(desc); err != nil {
				t.Fatal(err)
			}
		}
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{1 << 16}, 1))
		if n := len(b.regions.All()); n != 1 {
			t.Errorf("%d regions are left", n)
		}
		nothingMore(t, g, d)
	})
}
