// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/native/gpu/gputest"
	"mori/shmem"
)

// ways are the values of shmem.Config.NIC: where kernels post what goes to other hosts.
var ways = map[string]string{"proxy": "", "NIC": "emu0"}

// onHosts makes the ops as onGPUs does, with perHost ranks on each of several hosts, and calls f on
// each rank. To kernels the hosts are real.
func onHosts(t *testing.T, perHost int, cfg Config, opts Options, f func(j *gpuJob) error) {
	t.Helper()
	onHostsBy(t, "", perHost, cfg, opts, f)
}

// onHostsBy is onHosts with kernels that post to the queues of a NIC, or to the proxy if nic is "".
func onHostsBy(t *testing.T, nic string, perHost int, cfg Config, opts Options, f func(j *gpuJob) error) {
	t.Helper()
	gputest.Need(t)
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if opts.Timeout == 0 {
		opts.Timeout = 20 * time.Second
	}
	cfg.GPUPerNode = perHost
	var wait sync.WaitGroup
	for rank, g := range bootstrap.Local(cfg.WorldSize) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			at := place{fmt.Sprint("host ", rank/perHost), nic}
			if err := runOnGPU(g, all[rank%len(all)], at, cfg, opts, f); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}()
	}
	wait.Wait()
}

func hostsConfig(world int, k KernelType) Config {
	c := gpuConfig(world)
	c.KernelType = k
	return c
}

// GPUs of several hosts get the same bytes as the same op on host memory.
func TestGPUsBetweenHostsDoAsHosts(t *testing.T) {
	for way, nic := range ways {
		t.Run(way, func(t *testing.T) { betweenHosts(t, nic) })
	}
}

func betweenHosts(t *testing.T, nic string) {
	for _, k := range []KernelType{KernelInterNode, KernelInterNodeV1, KernelInterNodeV1LL, KernelAsyncLL} {
		t.Run(k.String(), func(t *testing.T) {
			onHostsBy(t, nic, 2, hostsConfig(4, k), Options{Threads: 1, ChunkBytes: 300}, rounds(3))
		})
	}
	t.Run("each rank on its own host", func(t *testing.T) {
		onHostsBy(t, nic, 1, hostsConfig(3, KernelInterNodeV1), Options{Threads: 1}, rounds(3))
	})
	t.Run("fp8_blockwise", func(t *testing.T) {
		c := hostsConfig(2, KernelAsyncLL)
		c.QuantType = QuantFp8Blockwise
		onHostsBy(t, nic, 1, c, Options{Threads: 1, ScaleBlocks: 5}, rounds(2))
	})
	t.Run("fp8_direct_cast", func(t *testing.T) {
		c := hostsConfig(2, KernelInterNode)
		c.QuantType = QuantFp8DirectCast
		onHostsBy(t, nic, 1, c, Options{Threads: 1}, rounds(2))
	})
}

// Kernels wait for data of other hosts from the first call on. So the transport between hosts must
// not wait for kernels.
func TestNothingBetweenHostsWaitsForKernels(t *testing.T) {
	for way, nic := range ways {
		t.Run(way, func(t *testing.T) { nothingWaits(t, nic) })
	}
}

func nothingWaits(t *testing.T, nic string) {
	gputest.NeedEmulated(t)
	const world = 2
	var ready, done sync.WaitGroup
	ready.Add(world)
	done.Add(world)
	var accept func()
	refuse := sync.OnceFunc(func() { accept = gputest.Refuse(t) })
	again := sync.OnceFunc(func() { accept() })
	onHostsBy(t, nic, 1, hostsConfig(world, KernelInterNodeV1), Options{Threads: 1}, func(j *gpuJob) error {
		ready.Done()
		ready.Wait()
		refuse()
		err := rounds(3)(j)
		done.Done()
		done.Wait()
		again()
		return err
	})
}

func TestARankOfAnotherHostThatDoesNotComeIsNamed(t *testing.T) {
	for way, nic := range ways {
		t.Run(way, func(t *testing.T) { oneDoesNotCome(t, nic) })
	}
}

func oneDoesNotCome(t *testing.T, nic string) {
	onHostsBy(t, nic, 1, hostsConfig(2, KernelInterNode), Options{Timeout: 300 * time.Millisecond}, func(j *gpuJob) error {
		if j.gpu.cfg.Rank == 1 {
			return nil
		}
		if _, err := j.gpu.Dispatch(j.ones(2)); err != nil {
			return err
		}
		if err := j.settle(); err != nil {
			return err
		}
		err := j.gpu.Check()
		if !errors.Is(err, shmem.ErrTimeout) || !strings.Contains(err.Error(), "no data arrived from rank 1 (expected 1, seen 0)") {
			return fmt.Errorf("dispatch: %v", err)
		}
		return nil
	})
}

func TestOverflowBetweenHostsIsReported(t *testing.T) {
	cfg := hostsConfig(4, KernelInterNodeV1)
	cfg.MaxTotalRecv = cfg.MaxNumInpToken // room for the rows of one rank
	onHosts(t, 2, cfg, Options{}, func(j *gpuJob) error {
		n := cfg.MaxNumInpToken
		_, err := j.gpu.Dispatch(j.ones(n)) // all to expert 0
		rows, late := j.gpu.Rows()
		var over *CapError
		if refused := j.gpu.cfg.Rank > 0; refused != errors.As(errors.Join(err, late), &over) {
			return fmt.Errorf("dispatch: %v, %v", err, late)
		}
		if want := n; j.gpu.cfg.Rank == 0 && rows != want || j.gpu.cfg.Rank != 0 && rows != 0 {
			return fmt.Errorf("%d rows came", rows)
		}
		out := Output{Rows: rows, Hidden: cfg.HiddenDim, Type: Float32, Input: j.give(make([]byte, rows*cfg.HiddenDim*4))}
		return errors.Join(j.gpu.Combine(out), j.settle(), j.gpu.Check())
	})
}

func TestUnsupportedBetweenHosts(t *testing.T) {
	onHosts(t, 1, hostsConfig(2, KernelInterNodeV1), Options{}, func(j *gpuJob) error {
		if err := j.gpu.Exclude([]int{1 - j.gpu.cfg.Rank}); !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("exclude: %v", err)
		}
		return nil
	})
}
