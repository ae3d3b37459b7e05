// SPDX-License-Identifier: MIT

package shmem

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/native/gpu/gputest"
	"mori/shmem/internal/access"
	"mori/shmem/internal/arena"
)

// gpus are the devices that tests use.
func gpus(t testing.TB) []*device.Device {
	t.Helper()
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// oneEach skips a test of n PEs whose kernels wait for each other where some would share a real
// GPU: then one kernel's wait can keep the other's from beginning. What an emulated GPU is given
// runs beside each other.
func oneEach(t testing.TB, n int) {
	t.Helper()
	gputest.Need(t)
	if have := len(gpus(t)); gputest.Real() && have < n {
		t.Skipf("kernels of %d PEs wait for each other, and there are %d GPUs", n, have)
	}
}

// onGPU is cfg with the heap on GPUs, in tests that run where there are some.
func onGPU(t testing.TB, cfg Config) Config {
	t.Helper()
	gputest.Need(t)
	cfg.Device = gpus(t)[0]
	return cfg
}

// memoryAt touches what is at at: symmetric memory, or else the test's own.
func memoryAt(w *World, at uint64) access.Memory {
	if b, _, err := w.heap.Locate(at, 1); err == nil {
		return b.Mem
	}
	return access.Host{}
}

// peek is what n bytes at at are on this PE.
func peek(t testing.TB, w *World, at, n uint64) []byte {
	t.Helper()
	b := make([]byte, n)
	if err := memoryAt(w, at).Copy(memory.AddrOf(b), at, n); err != nil {
		t.Fatal(err)
	}
	return b
}

// poke makes them b.
func poke(t testing.TB, w *World, at uint64, b []byte) {
	t.Helper()
	defer runtime.KeepAlive(b)
	if err := memoryAt(w, at).Copy(at, memory.AddrOf(b), uint64(len(b))); err != nil {
		t.Fatal(err)
	}
}

// setWord and getWord are of a word of 8 bytes of symmetric memory of this PE.
func setWord(t testing.TB, w *World, at, v uint64) {
	t.Helper()
	if _, err := memoryAt(w, at).Atomic(AtomicSet, 8, at, v, 0); err != nil {
		t.Fatal(err)
	}
}

func getWord(t testing.TB, w *World, at uint64) uint64 {
	t.Helper()
	v, err := memoryAt(w, at).Atomic(AtomicFetch, 8, at, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// gpuModes are heaps on GPUs made in every way.
var gpuModes = []Config{
	{Mode: StaticHeap, HeapSize: 4 << 20},
	{Mode: VMMHeap, HeapSize: 16 << 20, ChunkSize: 2 << 20},
	{Mode: Isolation, HeapSize: 4 << 20},
}

// Between heaps no driver is asked what memory is: it takes as long as a small put. It is about
// memory of the user's.
func TestHeapOnGPUsIsNotLookedUp(t *testing.T) {
	gputest.NeedEmulated(t)
	run(t, 2, onGPU(t, gpuModes[1]), func(w *World) error {
		a, err := w.Malloc(64)
		if err != nil {
			return err
		}
		b, err := w.Malloc(64)
		if err != nil {
			return err
		}
		poke(t, w, a, []byte{byte(w.pes.Me + 1)})
		own, err := w.gpu.Device.Alloc(64)
		if err != nil {
			return err
		}
		defer own.Close()
		w.rendezvous(t)
		if w.pes.Me == 0 { // PEs share the process, and so what fails in it
			gputest.Fail(t, "cuPointerGetAttributes=999")
			err = errors.Join(w.Put(b, a, 8, 1), w.Get(b, a, 8, 1), w.PutNbi(b+8, b, 8, 0), w.Quiet())
			if err2 := w.Put(b, own.Addr(), 8, 1); err2 == nil {
				t.Error("memory that nobody asked about was put")
			}
			gputest.Fail(t, "")
			if got := peek(t, w, b+8, 8)[0]; got != 2 {
				t.Errorf("the byte that went there and came back is %d", got)
			}
		}
		w.rendezvous(t)
		return err
	})
}

// inGPUModes runs f on n PEs, once for each mode of a heap on GPUs.
func inGPUModes(t *testing.T, n int, f func(t *testing.T, w *World) error) {
	for _, cfg := range gpuModes {
		t.Run(cfg.Mode.String(), func(t *testing.T) { run(t, n, onGPU(t, cfg), func(w *World) error { return f(t, w) }) })
	}
}

// A heap on GPUs is zeros at first, is where devices have memory, and each PE reaches the others'
// parts of it.
func TestHeapOnGPUs(t *testing.T) {
	inGPUModes(t, 3, func(t *testing.T, w *World) error {
		var all []uint64
		for i, size := range []uint64{8, 257, 5000, 3 << 20} {
			a, err := w.Malloc(size)
			if err != nil {
				return err
			}
			if p, err := device.Lookup(a); err != nil || p.Kind != device.OnDevice || p.Device != w.cfg.Device || a%arena.Grain != 0 {
				t.Errorf("PE %d: %d bytes at %#x are %v memory of %v, %v", w.pes.Me, size, a, p.Kind, p.Device, err)
			}
			for _, b := range peek(t, w, a, size) {
				if b != 0 {
					t.Fatalf("%d bytes are not zeros", size)
				}
			}
			w.rendezvous(t)
			right := (w.pes.Me + 1) % w.pes.N
			there := w.Ptr(a, right)
			if there == 0 {
				t.Fatalf("PE %d has no address of PE %d's memory", w.pes.Me, right)
			}
			b := []byte{byte(16*i + w.pes.Me + 1)}
			err = w.gpu.Copy(there+size-1, memory.AddrOf(b), 1)
			runtime.KeepAlive(b)
			if err != nil {
				return err
			}
			w.rendezvous(t)
			left := (w.pes.Me + w.pes.N - 1) % w.pes.N
			if got := peek(t, w, a, size)[size-1]; got != byte(16*i+left+1) {
				t.Errorf("PE %d, %d bytes: the last is %d", w.pes.Me, size, got)
			}
			if size < 1<<20 {
				all = append(all, a)
			} else if err := w.Free(a); err != nil {
				return err
			}
		}
		for _, a := range all {
			if err := w.Free(a); err != nil {
				return err
			}
		}
		if d := w.Describe(); d.Heap.Used != 0 || d.Heap.Allocations != 0 {
			t.Errorf("all is freed, and yet %+v", d.Heap)
		}
		return nil
	})
}

// farGPUs are PEs whose heaps are on GPUs and not mapped by each other.
var farGPUs = map[string]Config{"network": {DisableP2P: true}, "other host": {NodeID: "%d"}}

// Heaps on GPUs that are not mapped are reached by a transport that takes memory of GPUs. What
// nobody can do there says so.
func TestHeapsOnGPUsOverANetwork(t *testing.T) {
	const n = 300_000
	for name, cfg := range farGPUs {
		t.Run(name, func(t *testing.T) {
			run(t, 2, onGPU(t, cfg), func(w *World) error {
				a, err := w.Malloc(2*n + 4096)
				if err != nil {
					return err
				}
				if w.Ptr(a, 1-w.pes.Me) != 0 {
					t.Error("the memory of the other PE is mapped")
				}
				own, err := w.cfg.Device.Alloc(n)
				if err != nil {
					return err
				}
				mine, theirs, seen := filled(n, w.pes.Me), filled(n, 1-w.pes.Me), make([]byte, n)
				sig := a + 2*n - 2*n%8 + 1024
				err = errors.Join(
					w.Put(a, memory.AddrOf(mine), n, 1-w.pes.Me), // host memory to a GPU
					w.gpu.Copy(own.Addr(), memory.AddrOf(mine), n),
					w.PutNbi(a+n, own.Addr(), n, 1-w.pes.Me), // a GPU's memory to another's
					w.PutSignal(0, 0, 0, sig, 7, SignalSet, 1-w.pes.Me),
				)
				if err == nil {
					_, err = w.SignalWaitUntil(sig, CmpEQ, 7)
				}
				if err = errors.Join(err, w.BarrierAll()); err != nil {
					return err
				}
				for part := range uint64(2) {
					if !bytes.Equal(peek(t, w, a+part*n, n), theirs) {
						t.Errorf("PE %d: part %d has other bytes", w.pes.Me, part)
					}
				}
				err = errors.Join(w.Get(memory.AddrOf(seen), a, n, 1-w.pes.Me), w.Get(own.Addr(), a+n, n, 1-w.pes.Me))
				if err == nil && !bytes.Equal(seen, mine) {
					t.Errorf("PE %d gets other bytes", w.pes.Me)
				}
				if old, e := w.FetchAtomic(AtomicFetch, 8, sig, 0, 0, 1-w.pes.Me); old != 7 || e != nil {
					t.Errorf("fetch: %d, %v", old, e)
				}
				err = errors.Join(err, allRefused([]refusal{
					{"add", errors.ErrUnsupported, func() error { return w.Atomic(AtomicAdd, 8, sig, 1, 1-w.pes.Me) }},
					{"swap", errors.ErrUnsupported, func() error { return second(w.FetchAtomic(AtomicSwap, 8, sig, 1, 0, 1-w.pes.Me)) }},
				}))
				err = errors.Join(err, w.TeamWorld().Reduce(ReduceSum, fabric.Uint8, a, a, n), w.TeamWorld().Broadcast(a+n, a, n, 1))
				for i, got := range peek(t, w, a+n, n) {
					if want := mine[i] + theirs[i]; got != want {
						t.Errorf("PE %d: byte %d of the sum is %d, want %d", w.pes.Me, i, got, want)
						break
					}
				}
				return errors.Join(err, w.BarrierAll(), own.Close(), w.Free(a))
			})
		})
	}
}

// Some memory is of hosts, for layers whose own code loads and stores it.
func TestHostMemoryBesideAHeapOnGPUs(t *testing.T) {
	inGPUModes(t, 2, func(t *testing.T, w *World) error {
		a, err := w.MallocHost(256, 1000)
		if err != nil {
			return err
		}
		memory.Store64(w.Ptr(a+8, 1-w.pes.Me), uint64(w.pes.Me+1))
		if err := w.BarrierAll(); err != nil {
			return err
		}
		if got := memory.Load64(a + 8); got != uint64(2-w.pes.Me) {
			t.Errorf("PE %d has %d", w.pes.Me, got)
		}
		b, err := w.Malloc(1000)
		if err != nil {
			return err
		}
		if err := w.TeamWorld().Broadcast(a, b, 8, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("a broadcast from a GPU to host memory: %v", err)
		}
		return errors.Join(w.Free(a), w.Free(b))
	})
}
