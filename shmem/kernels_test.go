// SPDX-License-Identifier: MIT

package shmem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/native/abi"
	"mori/native/gpu/gputest"
	"mori/shmem/internal/arena"
)

// putByQueue has a kernel put n bytes of the heap to the same place of PE pe by the queue of
// Remote, piece by piece.
func putByQueue(w *World, at, n uint64, pe int) (err error) {
	const piece = 1000
	queue, ok := w.Remote()
	if !ok {
		return fmt.Errorf("PE %d has no queue: %w", w.pes.Me, w.RemoteErr(pe))
	}
	d := w.cfg.Device
	m, err := d.LoadKernels("proxy_put")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	f, err := m.Function("mori_proxy_put")
	if err != nil {
		return err
	}
	s, err := d.NewStream(device.Normal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	told, err := d.AllocHost(abi.ProxyPutOutcomeBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, told.Close()) }()
	out := &memory.Slice[abi.ProxyPutOutcome](told.Addr(), 1)[0]
	*out = abi.ProxyPutOutcome{}
	var args device.Args
	args.Uint64(queue).Uint32(uint32(pe)).Uint32(0).Uint64(at).Uint64(piece).Uint64(n / piece).Uint64(told.DeviceAddr())
	if err := errors.Join(f.Launch(s, device.Grid{Blocks: [3]uint32{2}, Threads: [3]uint32{32}}, &args), w.gpu.Wait(s)); err != nil {
		return err
	}
	if out.Failed != 0 {
		return fmt.Errorf("%d waits failed, one with status %#x", out.Failed, out.Status)
	}
	return nil
}

// Kernels put to PEs that their GPU does not reach by the queue of the World. mori_proxy_put counts
// remote offsets from 0, where the words of barriers are, so this puts what is there, zeros, and
// behind them what a first allocation has.
func TestRemoteQueue(t *testing.T) {
	const n = 200_000
	for name, cfg := range farGPUs {
		t.Run(name, func(t *testing.T) {
			oneEach(t, 2)
			run(t, 2, onGPU(t, cfg), func(w *World) error {
				a, err := w.Malloc(n)
				if err != nil {
					return err
				}
				mine := filled(n, w.pes.Me)
				src, err := w.Malloc(n + arena.Reserved)
				if err != nil {
					return err
				}
				poke(t, w, src+arena.Reserved, mine)
				if a != w.Base()+arena.Reserved {
					t.Fatalf("the first allocation is %d bytes behind the heap's begin", a-w.Base())
				}
				if err = errors.Join(w.BarrierAll(), putByQueue(w, src, n, 1-w.pes.Me), w.BarrierAll()); err != nil {
					return err
				}
				if got := peek(t, w, a, n-arena.Reserved); !bytes.Equal(got, filled(n, 1-w.pes.Me)[:n-arena.Reserved]) {
					t.Errorf("PE %d has other bytes than were put", w.pes.Me)
				}
				if err = fromABuffer(t, w, a); err != nil {
					return err
				}
				err = errors.Join(w.RemoteErr(1-w.pes.Me), w.BarrierAll())
				if own := w.RemoteErr(w.pes.Me); !errors.Is(own, ErrInvalid) {
					t.Errorf("the own PE: %v", own)
				}
				return err
			})
		})
	}
	t.Run("mapped", func(t *testing.T) {
		run(t, 2, onGPU(t, Config{}), func(w *World) error {
			if _, ok := w.Remote(); ok {
				t.Error("there is a queue though all PEs are mapped")
			}
			return nil
		})
	})
}

// fromABuffer puts from memory that is no symmetric one, but registered. The words of barriers are
// overwritten.
func fromABuffer(t *testing.T, w *World, a uint64) error {
	const n = 10_000
	own, err := w.cfg.Device.Alloc(n)
	if err != nil {
		return err
	}
	again := filled(n, w.pes.Me+7)
	poke(t, w, a, again)
	err = errors.Join(w.gpu.Copy(own.Addr(), a, n), w.gpu.Clear(a, n), w.RegisterBuffer(own.Addr(), n), w.BarrierAll())
	if err == nil {
		err = errors.Join(putByQueue(w, own.Addr(), n, 1-w.pes.Me), w.BarrierAll())
	}
	if got := peek(t, w, a, n-arena.Reserved); !bytes.Equal(got, filled(n, 1-w.pes.Me+7)[arena.Reserved:]) {
		t.Errorf("PE %d has other bytes than were put from a registered buffer", w.pes.Me)
	}
	return errors.Join(err, w.DeregisterBuffer(own.Addr(), n), own.Close())
}

// everyoneImage stands for a user's module of native/kernels/testdata/everyone.cpp.
const everyoneImage = `.version 8.0
.target sm_80
.address_size 64
.weak .global .align 8 .b8 mori_shmem_state[64];
.visible .entry mori_test_everyone()
`

// everyone runs some turns of mori_test_everyone on this PE's GPU.
func everyone(w *World, at, bytes, first, turns uint64) (err error) {
	d := w.cfg.Device
	m, err := d.Load([]byte(everyoneImage))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	f, err := m.Function("mori_test_everyone")
	if err != nil {
		return err
	}
	if _, err = w.ModuleInit(m.Handle()); err != nil {
		return err
	}
	wrong, err := d.AllocHost(8)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wrong.Close()) }()
	memory.Store64(wrong.Addr(), 0)
	s, err := d.NewStream(device.Normal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var args device.Args
	args.Uint64(at).Uint64(bytes).Uint64(first).Uint64(turns).Uint64(wrong.DeviceAddr())
	if err := errors.Join(second(w.pes.Gather(context.Background(), nil)), f.Launch(s, device.Grid{Threads: [3]uint32{64}}, &args), w.gpu.Wait(s)); err != nil {
		return err
	}
	if n := memory.Load64(wrong.Addr()); n != 0 {
		return fmt.Errorf("PE %d saw %d things that are wrong", w.pes.Me, n)
	}
	return nil
}

// Every PE puts, gets, signals and meets with every other one from kernels: some are mapped, and
// some reached by the queue.
func TestKernelsReachEveryone(t *testing.T) {
	for name, cfg := range map[string]Config{"mapped": {}, "network": {DisableP2P: true}, "other hosts": {NodeID: "%d"},
		"two hosts": {NodeID: "a|b"}, "NIC": {NodeID: "%d", NIC: "emu0"}, "two hosts and NICs": {NodeID: "a|b", NIC: "emu0"}} {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				oneEach(t, n)
				gputest.NeedEmulated(t) // no driver takes the image
				cfg := cfg
				cfg.Timeout = time.Minute // a process has up to 64 lanes and some threads that poll
				run(t, n, onGPU(t, cfg), func(w *World) error {
					a, err := w.Malloc(1 << 20)
					if err != nil {
						return err
					}
					return errors.Join(everyone(w, a, 5003, 1, 3), everyone(w, a, 40_001, 4, 2), w.BarrierAll())
				})
			})
		}
	}
}

// A barrier on streams synchronises all PEs, and orders the operations of kernels before and after
// it.
func TestBarrierOnStreamOverANetwork(t *testing.T) {
	for name, cfg := range map[string]Config{"network": {DisableP2P: true}, "other hosts": {NodeID: "%d"}, "two hosts": {NodeID: "a|b"},
		"isolated": {NodeID: "%d", Mode: Isolation}, "NIC": {DisableP2P: true, NIC: "emu0"}} {
		t.Run(name, func(t *testing.T) {
			oneEach(t, 4)
			cfg := cfg
			cfg.Timeout = time.Minute
			run(t, 4, onGPU(t, cfg), func(w *World) error {
				s, err := w.cfg.Device.NewStream(device.Normal) // PEs of one GPU must not wait behind each other
				for range 20 {
					err = errors.Join(err, w.BarrierOnStream(s.Handle()))
				}
				return errors.Join(err, w.gpu.Wait(s), w.BarrierAll(), s.Close())
			})
		})
	}
}

// pair makes Worlds of two PEs that are apart, which end as they will.
func pair(t *testing.T, cfg Config, f func(w *World)) {
	t.Helper()
	cfg = onGPU(t, cfg)
	cfg.HeapSize = 1 << 20
	var wait sync.WaitGroup
	for pe, g := range bootstrap.Local(2) {
		cfg := cfg
		cfg.Device = gpus(t)[pe%len(gpus(t))]
		wait.Add(1)
		go func() {
			defer wait.Done()
			w, err := Init(context.Background(), g, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			f(w)
			_ = w.Finalize(context.Background()) // returns the fault once more
		}()
	}
	wait.Wait()
}

// What a kernel wants and cannot have breaks the World at the next call, whether the kernel has
// noticed or not.
func TestKernelsMistakesAreReported(t *testing.T) {
	oneEach(t, 2)
	over := make(chan struct{})
	pair(t, Config{DisableP2P: true, Timeout: 20 * time.Second}, func(w *World) {
		if w.pes.Me == 1 {
			<-over
			return
		}
		defer close(over)
		own, err := w.cfg.Device.Alloc(4096)
		if err != nil {
			t.Error(err)
			return
		}
		if err := putByQueue(w, own.Addr(), 4000, 1); err == nil {
			t.Error("a put of memory that is not registered")
		}
		if err := w.RemoteErr(1); !errors.Is(err, fabric.ErrNoMR) {
			t.Errorf("the queue's error is %v", err)
		}
		if err := w.BarrierAll(); !errors.Is(err, fabric.ErrNoMR) || !strings.Contains(err.Error(), "PE 1") {
			t.Errorf("the next call says %v", err)
		}
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
}

// No PE waits without end for a killed PE: kernels that wait for it time out, and the World names
// it.
func TestKernelsWaitForAKilledPE(t *testing.T) {
	gputest.Need(t)
	for name, l := range map[string]life{"network": {DisableP2P: true}, "other hosts": {NodeID: "node %d"}} {
		t.Run(name, func(t *testing.T) {
			l := l
			l.Name, l.Dies, l.GPU, l.Timeout = "kernels meet", 1, true, 3*time.Second
			said, ends := live(t, 3, l)
			for pe, err := range ends {
				if pe != l.Dies && (err != nil || !strings.Contains(said[pe], "survived") || !strings.Contains(said[pe], "rank 1 has died")) {
					t.Errorf("PE %d: %v\n%s", pe, err, said[pe])
				}
			}
		})
	}
}

// kernelsExchange has barriers on a stream until one fails. What the lost GPU keeps then is not
// checked.
func kernelsExchange(w *World, l life) (err error) {
	s := w.cfg.Device.ExternalStream(0)
	for i := 0; err == nil; i++ {
		if i == 5 {
			err = dieIf(w, l)
		}
		err = errors.Join(err, w.BarrierOnStream(0), w.gpu.Wait(s))
	}
	for end := time.Now().Add(10 * time.Second); w.pes.Check() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	begin := time.Now()
	fmt.Printf("survived: %v\n", errors.Join(err, w.pes.Check()))
	_ = w.Finalize(context.Background())
	fmt.Printf("finalized after %v\n", time.Since(begin))
	os.Exit(0)
	return nil
}

// A status that a kernel got is an error that names what the PE is reached by, and why it is not.
func TestStatusesOfKernels(t *testing.T) {
	for name, nic := range map[string]string{"proxy": "", "NIC": "emu0"} {
		t.Run(name, func(t *testing.T) {
			oneEach(t, 2)
			run(t, 2, onGPU(t, Config{NodeID: "%d", NIC: nic}), func(w *World) error {
				if w.State() == 0 {
					t.Error("kernels have no State")
				}
				const statusRefused, statusTimeout, remoteAccess = 0x10001, 0x10002, 1<<32 | 0x13
				peer := 1 - w.pes.Me
				if err := w.RemoteStatus(peer, statusTimeout); !errors.Is(err, ErrTimeout) {
					t.Errorf("a queue that stood still: %v", err)
				}
				if err := w.RemoteStatus(peer, statusRefused); !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("what was refused: %v", err)
				}
				if err := w.RemoteStatus(peer, remoteAccess); nic != "" && !strings.Contains(err.Error(), "NIC emu0: ") {
					t.Errorf("an error of a NIC: %v", err)
				}
				if err := w.RemoteStatus(w.pes.Me, statusTimeout); !errors.Is(err, ErrInvalid) {
					t.Errorf("the own PE: %v", err)
				}
				return nil
			})
		})
	}
}
