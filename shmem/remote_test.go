// SPDX-License-Identifier: MIT

package shmem

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/remote"
)

// apart are Worlds whose PEs do not map each other, or not all.
var apart = map[string]Config{
	"one host":       {DisableP2P: true},
	"two hosts":      {NodeID: "node %d"},
	"isolated":       {NodeID: "node %d", Mode: Isolation},
	"grows":          {NodeID: "node %d", Mode: VMMHeap, ChunkSize: 1 << 20},
	"grows, near":    {DisableP2P: true, Mode: VMMHeap, ChunkSize: 1 << 20},
	"NICs":           {NodeID: "node %d"},
	"NICs, isolated": {NodeID: "node %d", Mode: Isolation},
	"NICs, grows":    {NodeID: "node %d", Mode: VMMHeap, ChunkSize: 1 << 20},
}

// inApart runs f on n PEs, once for each of apart.
func inApart(t *testing.T, n int, f func(t *testing.T, w *World) error) {
	for name, cfg := range apart {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "NICs") {
				byNICs(t)
			}
			run(t, n, cfg, func(w *World) error { return f(t, w) })
		})
	}
}

// settled is quiet for tests.
func (w *World) settled() error { return w.net.Quiet(w.pes.Deadline()) }

func TestNetworkMovesBytes(t *testing.T) {
	inApart(t, 2, func(t *testing.T, w *World) error {
		const most = 3<<20 - 256
		a, err := w.Malloc(most)
		if err != nil {
			return err
		}
		b, at, err := w.heap.Locate(a, most)
		if err != nil {
			return err
		}
		other, src, back := 1-w.pes.Me, filled(most, w.pes.Me), make([]byte, most)
		defer runtime.KeepAlive(src)
		defer runtime.KeepAlive(back)
		for _, size := range []uint64{1, 8, 8192, 8192 + 1, 1 << 20, 1<<20 + 1, most} {
			put, get := w.net.Put, w.net.Get
			if size%2 == 1 {
				put, get = w.net.PutNow, w.net.GetNow
			}
			off := at + most - size
			w.rendezvous(t)
			if err := errors.Join(put(other, b.Regions(), off, memory.AddrOf(src), size), w.settled()); err != nil {
				return fmt.Errorf("put of %d bytes: %w", size, err)
			}
			w.rendezvous(t)
			if got := memory.Bytes(b.Base+off, size); !bytes.Equal(got, filled(int(size), other)) {
				t.Errorf("%d bytes that were put are not the same", size)
			}
			if err := get(other, b.Regions(), off, memory.AddrOf(back), size); err != nil {
				return fmt.Errorf("get of %d bytes: %w", size, err)
			}
			if size%2 == 0 {
				if err := w.settled(); err != nil {
					return err
				}
			}
			if !bytes.Equal(back[:size], src[:size]) {
				t.Errorf("%d bytes that were got are not the same", size)
			}
		}
		w.rendezvous(t)
		return w.Free(a)
	})
}

// The source of a putNow is free at once.
func TestNetworkPutNowCopies(t *testing.T) {
	inApart(t, 2, func(t *testing.T, w *World) error {
		const count, size = 2000, 24
		a, err := w.Malloc(count * size)
		if err != nil {
			return err
		}
		b, at, _ := w.heap.Locate(a, count*size)
		src := make([]byte, size)
		defer runtime.KeepAlive(src)
		for i := range uint64(count) {
			for j := range src {
				src[j] = byte(i) ^ byte(w.pes.Me<<4)
			}
			if err := w.net.PutNow(1-w.pes.Me, b.Regions(), at+i*size, memory.AddrOf(src), size); err != nil {
				return err
			}
		}
		if err := w.settled(); err != nil {
			return err
		}
		w.rendezvous(t)
		for i, got := range memory.Bytes(a, count*size) {
			if want := byte(i/size) ^ byte((1-w.pes.Me)<<4); got != want {
				t.Fatalf("byte %d is %#x, want %#x", i, got, want)
			}
		}
		w.rendezvous(t)
		return w.Free(a)
	})
}

func TestNetworkAtomics(t *testing.T) {
	inApart(t, 2, func(t *testing.T, w *World) error {
		a, err := w.Calloc(4, 8)
		if err != nil {
			return err
		}
		b, at, _ := w.heap.Locate(a, 32)
		check := func(size int, op fabric.AtomicOp, value, compare, was, is uint64) {
			t.Helper()
			old, err := w.net.Atomic(1-w.pes.Me, b.Regions(), at, op, size, value, compare)
			now, again := w.net.Atomic(1-w.pes.Me, b.Regions(), at, fabric.AtomicRead, size, 0, 0)
			if err != nil || again != nil || old != was || now != is {
				t.Errorf("%d bytes, %v %#x: was %#x, is %#x, %v, %v; want %#x, %#x", size, op, value, old, now, err, again, was, is)
			}
		}
		for size, top := range map[int]uint64{4: 1<<32 - 1, 8: 1<<64 - 1} {
			check(size, fabric.AtomicWrite, top, 0, 0, top)
			check(size, fabric.AtomicSum, 6, 0, top, 5)
			check(size, fabric.AtomicBXor, 3, 0, 5, 6)
			check(size, fabric.AtomicBAnd, 12, 0, 6, 4)
			check(size, fabric.AtomicBOr, 3, 0, 4, 7)
			check(size, fabric.AtomicCSwap, 9, 8, 7, 7)
			check(size, fabric.AtomicCSwap, 9, 7, 7, 9)
			check(size, fabric.AtomicWrite, 0, 0, 9, 0)
		}
		w.rendezvous(t)
		// Both add to one word of PE 0, over the network and with the CPU, and all that is counted is
		// there.
		const adds = 2000
		word := at + 8
		for range adds {
			if w.pes.Me == 0 {
				memory.Add64(b.Base+word, 1)
			} else if err := w.net.Update(0, b.Regions(), word, fabric.AtomicSum, 8, 1); err != nil {
				return err
			}
		}
		if err := w.settled(); err != nil {
			return err
		}
		w.rendezvous(t)
		if got := memory.Load64(b.Base + word); w.pes.Me == 0 && got != 2*adds {
			t.Errorf("%d, want %d", got, 2*adds)
		}
		w.rendezvous(t)
		return w.Free(a)
	})
}

// What was put before a fence is there before what is put after it.
func TestNetworkFence(t *testing.T) {
	inApart(t, 2, func(t *testing.T, w *World) error {
		const size, rounds = 200 << 10, 60
		a, err := w.Calloc(size+8, 1)
		if err != nil {
			return err
		}
		b, at, _ := w.heap.Locate(a, size+8)
		src := make([]byte, size)
		defer runtime.KeepAlive(src)
		for round := uint64(1); round <= rounds; round++ {
			if w.pes.Me == 0 {
				for i := range src {
					src[i] = byte(round)
				}
				err := errors.Join(w.net.Put(1, b.Regions(), at, memory.AddrOf(src), size), w.net.Fence(), w.net.Update(1, b.Regions(), at+size, fabric.AtomicWrite, 8, round), w.settled())
				if err != nil {
					return err
				}
			} else {
				if err := w.waiter.Await(func() string { return "a round" }, func() bool { return memory.Load64(a+size) == round }); err != nil {
					return err
				}
				for i, got := range memory.Bytes(a, size) {
					if got != byte(round) {
						t.Fatalf("round %d: byte %d is %d", round, i, got)
					}
				}
			}
			w.rendezvous(t)
		}
		return w.Free(a)
	})
}

// Many threads of each PE put, get and are quiet at once.
func TestNetworkFromManyThreads(t *testing.T) {
	inApart(t, 3, func(t *testing.T, w *World) error {
		const threads, rounds, size = 6, 40, 3000
		a, err := w.Calloc(uint64(w.pes.N*threads), size)
		if err != nil {
			return err
		}
		b, at, _ := w.heap.Locate(a, uint64(w.pes.N*threads*size))
		var wait sync.WaitGroup
		errs := make([]error, threads)
		for i := range threads {
			wait.Add(1)
			go func() {
				defer wait.Done()
				src, back := make([]byte, size), make([]byte, size)
				defer runtime.KeepAlive(src)
				defer runtime.KeepAlive(back)
				to := (w.pes.Me + 1 + i%2) % w.pes.N
				off := at + uint64((w.pes.Me*threads+i)*size)
				for round := range rounds {
					copy(src, filled(size, round+i))
					err := errors.Join(w.net.Put(to, b.Regions(), off, memory.AddrOf(src), size), w.settled(), w.net.GetNow(to, b.Regions(), off, memory.AddrOf(back), size))
					if err == nil && !bytes.Equal(src, back) {
						err = fmt.Errorf("thread %d, round %d: what was got is not what was put", i, round)
					}
					if errs[i] = err; err != nil {
						return
					}
				}
			}()
		}
		wait.Wait()
		w.rendezvous(t)
		return errors.Join(errors.Join(errs...), w.Free(a))
	})
}

func TestNetworkRefusesLocalMemoryThatIsNotThere(t *testing.T) {
	inApart(t, 2, func(t *testing.T, w *World) error {
		a, err := w.Malloc(64 << 10)
		if err != nil {
			return err
		}
		b, at, _ := w.heap.Locate(a, 8)
		for _, op := range []func(int, *remote.Regions, uint64, uint64, uint64) error{w.net.Put, w.net.Get, w.net.PutNow, w.net.GetNow} {
			for _, size := range []uint64{8, 64 << 10} {
				if err := op(1-w.pes.Me, b.Regions(), at, 1<<46, size); !errors.Is(err, ErrInvalid) {
					t.Errorf("%d bytes: %v", size, err)
				}
			}
		}
		src := make([]byte, 8)
		defer runtime.KeepAlive(src)
		if err := errors.Join(w.net.Put(1-w.pes.Me, b.Regions(), at, memory.AddrOf(src), 8), w.settled()); err != nil {
			return err
		}
		w.rendezvous(t)
		return w.Free(a)
	})
}

// A region that the target has closed refuses: quiet says so, once, and names the PE.
func TestNetworkErrorsNameThePE(t *testing.T) {
	inApart(t, 2, func(t *testing.T, w *World) error {
		a, err := w.Malloc(64)
		if err != nil {
			return err
		}
		b, at, _ := w.heap.Locate(a, 64)
		if w.pes.Me == 1 {
			_ = b.Regions().Close()
		}
		w.rendezvous(t)
		if w.pes.Me == 0 {
			src := make([]byte, 64)
			defer runtime.KeepAlive(src)
			named := func(what string, err error) {
				if err == nil || !strings.Contains(err.Error(), "PE 1") || !errors.Is(err, ErrUnreachable) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := w.net.Put(1, b.Regions(), at, memory.AddrOf(src), 64); err != nil {
				return err
			}
			named("quiet", w.settled())
			named("get", w.net.GetNow(1, b.Regions(), at, memory.AddrOf(src), 64))
			_, err := w.net.Atomic(1, b.Regions(), at, fabric.AtomicSum, 8, 1, 0)
			named("atomic", err)
			if err := w.settled(); err != nil {
				t.Errorf("an error is told twice: %v", err)
			}
		}
		w.rendezvous(t)
		return w.Free(a)
	})
}

func TestDescribeNamesTheTransport(t *testing.T) {
	run(t, 3, Config{NodeID: "node %d"}, func(w *World) error {
		d := w.Describe()
		for pe, p := range d.Peers {
			if want := map[bool]string{true: "self", false: "tcp"}[pe == w.pes.Me]; p.Path != want || p.Node != fmt.Sprintf("node %d", pe) || p.Path == "tcp" && !strings.Contains(p.Why, "another node") {
				t.Errorf("%+v", p)
			}
		}
		return nil
	})
	run(t, 2, Config{DisableP2P: true}, func(w *World) error {
		if p := w.Describe().Peers[1-w.pes.Me]; p.Path == "mapped" || p.Path == "none" || !strings.Contains(p.Why, "MORI_DISABLE_P2P") {
			t.Errorf("%+v", p)
		}
		return nil
	})
	run(t, 2, Config{}, func(w *World) error {
		if p := w.Describe().Peers[1-w.pes.Me]; p.Path != "mapped" {
			t.Errorf("%+v", p)
		}
		return nil
	})
}
