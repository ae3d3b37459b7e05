// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/memory"
	"mori/native/gpu/gputest"
	"mori/shmem/internal/arena"
)

// barriersOnStreams has each PE put to its neighbour by copies on a stream, with barriers on the
// stream and nothing else between.
func barriersOnStreams(w *World, _ life) (err error) {
	const rounds, n = 8, 64 << 10
	a, err := w.Malloc(rounds * n)
	if err != nil {
		return err
	}
	s, err := w.cfg.Device.NewStream(device.Normal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	right := w.Ptr(a, (w.pes.Me+1)%w.pes.N)
	for round := range uint64(rounds) {
		at := round * n
		if round == 0 {
			err = s.Set(right+at, byte(w.pes.Me+1), n)
		} else {
			err = s.Copy(right+at, a+at-n, n) // what came in the round before goes on
		}
		if err = errors.Join(err, w.BarrierOnStream(s.Handle())); err != nil {
			return err
		}
	}
	if err := errors.Join(w.gpu.Wait(s), w.BarrierAll()); err != nil {
		return err
	}
	for round := range rounds {
		b := make([]byte, n)
		if err := w.Get(memory.AddrOf(b), a+uint64(round)*n, n, w.pes.Me); err != nil {
			return err
		}
		want := byte((w.pes.Me+w.pes.N*rounds-round-1)%w.pes.N + 1)
		for i, got := range b {
			if got != want {
				return fmt.Errorf("PE %d, round %d, byte %d is %d, want %d", w.pes.Me, round, i, got, want)
			}
		}
	}
	return w.Free(a)
}

func TestBarrierOnStream(t *testing.T) {
	for _, cfg := range gpuModes {
		for _, n := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%v/%d", cfg.Mode, n), func(t *testing.T) {
				oneEach(t, n)
				run(t, n, onGPU(t, cfg), func(w *World) error { return barriersOnStreams(w, life{}) })
			})
		}
	}
	t.Run("processes", func(t *testing.T) {
		oneEach(t, 4)
		said, ends := live(t, 4, life{Name: "stream", Dies: -1, GPU: true})
		for pe, err := range ends {
			if err != nil {
				t.Errorf("PE %d: %v\n%s", pe, err, said[pe])
			}
		}
	})
}

// A World waits at its end for barriers that streams have not come to yet.
func TestFinalizeWaitsForBarriersOnStreams(t *testing.T) {
	for range 20 {
		run(t, 2, onGPU(t, Config{}), func(w *World) error {
			return errors.Join(w.BarrierOnStream(0), w.BarrierOnStream(0), w.BarrierAll())
		})
	}
}

// What was put for later is there after a barrier on a stream.
func TestBarrierOnStreamWaitsForLaterPuts(t *testing.T) {
	inGPUModes(t, 2, func(t *testing.T, w *World) error {
		const n = 1 << 20
		a, err := w.Malloc(n)
		if err != nil {
			return err
		}
		src, err := w.cfg.Device.AllocHost(n)
		if err != nil {
			return err
		}
		for i := range memory.Bytes(src.Addr(), n) {
			memory.Bytes(src.Addr(), n)[i] = byte(w.pes.Me + 1)
		}
		dst, err := w.cfg.Device.AllocHost(n) // a copy to other memory would wait for the barrier in the driver, and hold up the other PE
		if err != nil {
			return errors.Join(err, src.Close())
		}
		err = errors.Join(w.PutNbi(a, src.Addr(), n, 1-w.pes.Me), w.BarrierOnStream(0))
		s := w.cfg.Device.ExternalStream(0)
		err = errors.Join(err, s.Copy(dst.Addr(), a, n), w.gpu.Wait(s))
		b := memory.Bytes(dst.Addr(), n)
		if err == nil && (b[0] != byte(2-w.pes.Me) || b[n-1] != byte(2-w.pes.Me)) {
			t.Errorf("PE %d has %d and %d after the barrier", w.pes.Me, b[0], b[n-1])
		}
		return errors.Join(err, w.Quiet(), src.Close(), dst.Close(), w.Free(a))
	})
}

// A kernel whose peers do not come gives up, and the host learns which word it waited for. Each PE
// is a process: a kernel that gives up takes a real GPU away from its process.
func TestKernelThatGaveUpIsReported(t *testing.T) {
	gputest.Need(t)
	said, _ := live(t, 2, life{Name: "stream alone", Dies: 2, GPU: true, Timeout: 2 * time.Second})
	if !strings.Contains(said[0], "a kernel of PE 0 timed out waiting for the word at") || !strings.Contains(said[0], "to become 1 from PE 1; its last value was 0") {
		t.Errorf("PE 0: %s", said[0])
	}
}

// stateOf is what a module's kernels see.
func stateOf(t *testing.T, w *World, m *device.Module) []byte {
	t.Helper()
	v, err := m.Variable("mori_shmem_state")
	if err != nil {
		t.Fatal(err)
	}
	return peekAt(t, w, v.Addr, v.Bytes)
}

func peekAt(t *testing.T, w *World, at, n uint64) []byte {
	t.Helper()
	b := make([]byte, n)
	if err := w.gpu.Copy(memory.AddrOf(b), at, n); err != nil {
		t.Fatal(err)
	}
	return b
}

// A user's module that has been initialised works in this World; after it its kernels have no PEs,
// and the next World fills it again.
func TestModuleInit(t *testing.T) {
	gputest.Need(t)
	const n = 2
	users := make([]*device.Module, n)
	known := make([]*Module, n)
	for pe := range users {
		d := gpus(t)[pe%len(gpus(t))]
		m, err := d.LoadKernels("shmem_barrier") // stands for a user's
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		users[pe] = m
	}
	launch := func(w *World) error {
		f, err := users[w.pes.Me].Function("mori_shmem_barrier")
		if err != nil {
			return err
		}
		s, err := w.cfg.Device.NewStream(device.Normal)
		if err != nil {
			return err
		}
		for range 3 {
			err = errors.Join(err, f.Launch(s, device.Grid{Threads: [3]uint32{32}}, nil))
		}
		return errors.Join(err, w.gpu.Wait(s), s.Close())
	}
	run(t, n, onGPU(t, Config{}), func(w *World) error {
		m, err := w.ModuleInit(users[w.pes.Me].Handle())
		if err != nil {
			return err
		}
		known[w.pes.Me] = m
		b := stateOf(t, w, users[w.pes.Me])
		if pe, npes := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:]); int(pe) != w.pes.Me || int(npes) != n {
			t.Errorf("the module of PE %d knows that it is PE %d of %d", w.pes.Me, pe, npes)
		}
		if _, err := w.ModuleInit(users[w.pes.Me].Handle()); err != nil {
			t.Errorf("once more: %v", err)
		}
		other, err := w.cfg.Device.LoadKernels("io_copy_blocks")
		if err != nil {
			return err
		}
		if _, err := w.ModuleInit(other.Handle()); !errors.Is(err, device.ErrNoSymbol) {
			t.Errorf("a module without the symbol: %v", err)
		}
		return errors.Join(launch(w), other.Close())
	})
	run(t, n, onGPU(t, Config{Mode: VMMHeap, HeapSize: 16 << 20, ChunkSize: 2 << 20}), func(w *World) error {
		if b := stateOf(t, w, users[w.pes.Me]); binary.LittleEndian.Uint32(b) != 0 {
			t.Errorf("after Finalize the module of PE %d still knows %x", w.pes.Me, b)
		}
		return errors.Join(w.Refill(known[w.pes.Me]), launch(w))
	})
}

// With the heap in host memory, what is of GPUs says so.
func TestHostHeapHasNoDeviceSide(t *testing.T) {
	run(t, 1, Config{}, func(w *World) error {
		_, err := w.ModuleInit(1)
		return allRefused([]refusal{
			{"barrier on a stream", errors.ErrUnsupported, func() error { return w.BarrierOnStream(0) }},
			{"module", errors.ErrUnsupported, func() error { return err }},
		})
	})
}

func TestPEsDoNotAgreeWhereTheHeapIs(t *testing.T) {
	cfg := onGPU(t, Config{HeapSize: 1 << 20, Timeout: 20 * time.Second})
	groups := bootstrap.Local(2)
	errs := make(chan error, 2)
	for pe, g := range groups {
		cfg := cfg
		if pe == 1 {
			cfg.Device = nil
		}
		go func() {
			_, err := Init(context.Background(), g, cfg)
			errs <- err
		}()
	}
	for range groups {
		if err := <-errs; !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "PE 0 has a heap of 1048576 bytes on a GPU") || !strings.Contains(err.Error(), "PE 1 of 1048576 bytes on host memory") {
			t.Error(err)
		}
	}
}

func TestGPUMemoryIsShort(t *testing.T) {
	gputest.Need(t)
	d := gpus(t)[0]
	_, total, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Init(context.Background(), bootstrap.Local(1)[0], Config{Device: d, HeapSize: arena.RoundUp(total+1, 1<<20)})
	if !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), "MORI_SHMEM_HEAP_SIZE") {
		t.Errorf("more than there is: %v", err)
	}
	// All but little of what is free is taken by somebody else.
	free, _, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	if free < 64<<20 {
		t.Skip("the device is full")
	}
	taken, err := d.Alloc(free - 24<<20)
	if err != nil {
		t.Skip("the device does not give what it says is free:", err)
	}
	defer func() { _ = taken.Close() }()
	_, err = Init(context.Background(), bootstrap.Local(1)[0], Config{Device: d, HeapSize: free - 16<<20})
	if !errors.Is(err, ErrNoMemory) {
		t.Errorf("a heap that does not fit: %v", err)
	}
	run(t, 2, Config{HeapSize: 1 << 20}, func(w *World) error { return w.BarrierAll() }) // all is as before
	tight(t, d)
}

// tight has two PEs on a device that has room for the heap of one: none gets one, and each says
// why.
func tight(t *testing.T, d *device.Device) {
	t.Helper()
	errs := make(chan error, 2)
	for _, g := range bootstrap.Local(2) {
		go func() {
			_, err := Init(context.Background(), g, Config{Device: d, HeapSize: 16 << 20, Timeout: 20 * time.Second})
			errs <- err
		}()
	}
	short, elsewhere := 0, 0
	for range 2 {
		err := <-errs
		if errors.Is(err, ErrNoMemory) {
			short++
		}
		if errors.Is(err, ErrElsewhere) {
			elsewhere++
		}
	}
	if short != 1 || elsewhere != 1 {
		t.Errorf("of two PEs %d have no room, and %d are told so", short, elsewhere)
	}
}
