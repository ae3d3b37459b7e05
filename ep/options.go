// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"time"

	env "mori/core/config"
	"mori/ep/internal/gpu"
	"mori/ep/internal/host"
	"mori/ep/internal/launch"
	"mori/shmem"
)

// Options shape an Op. Each rank may have its own, but for ChunkBytes.
type Options struct {
	Timeout     time.Duration // of each wait for other ranks, 0: unbounded
	Threads     int           // that move and sum rows on host memory; at least 1
	ScaleBlocks int           // scales of a row if QuantType is blockwise
	Host        bool          // on host memory even if the World's heap is on a GPU
	Blocks      int           // most that the cost model suggests; 0: half of what the GPU runs at once
	Tuning      *Tuning       // launches that were measured to be the best, nil: none
	ChunkBytes  int           // about what kernels send to another host at once; 0: 2 MiB

	// Interrupt is called repeatedly while a recv on host memory waits. If it returns an error, the
	// wait ends with it, and the recv may be called again. Calls of one phase use the World's
	// Interrupt. May be nil.
	Interrupt func() error
}

func (o *Options) host() host.Options {
	return host.Options{Timeout: o.Timeout, Threads: o.Threads, Interrupt: o.Interrupt}
}

func (o *Options) gpu() gpu.Options {
	return gpu.Options{Timeout: o.Timeout, Blocks: o.Blocks, Tuning: o.Tuning, ChunkBytes: o.ChunkBytes}
}

// The defaults of Options.
const (
	defaultTimeout     = 30 * time.Second
	defaultScaleBlocks = 56
)

// OptionsFromEnv reads MORI_EP_TIMEOUT_MS, MORI_EP_DEVICE, MORI_EP_THREADS,
// MORI_FP8_COMBINE_SCALE_DIM, MORI_EP_BLOCKS and MORI_EP_LAUNCH_CONFIG_MODE with
// MORI_EP_TUNING_CONFIG. By default the PEs of a host share its processors evenly.
func OptionsFromEnv(w *shmem.World) (o Options, err error) {
	if o.Threads, err = env.Int(env.EPThreads, max(1, w.Cores()/w.TeamShared().NPEs()), 1, 1024); err != nil {
		return o, err
	}
	ms, err := env.Int(env.EPTimeout, int(defaultTimeout/time.Millisecond), 0, 1<<31-1)
	if err != nil {
		return o, err
	}
	o.Timeout = time.Duration(ms) * time.Millisecond
	switch on := env.Get(env.EPDevice); {
	case on == "host":
		o.Host = true
	case on == "gpu" && w.Device() == nil:
		return o, fmt.Errorf("%s=gpu, but the symmetric heap is in host memory: %w", env.EPDevice, ErrConfig)
	case on != "" && on != "gpu":
		return o, fmt.Errorf("%s=%q: want host or gpu: %w", env.EPDevice, on, ErrConfig)
	}
	if o.ScaleBlocks, err = env.Int(env.FP8CombineScaleDim, defaultScaleBlocks, 1, 1<<20); err != nil {
		return o, err
	}
	return o, o.launchesFromEnv()
}

// launchesFromEnv reads how launches are chosen.
func (o *Options) launchesFromEnv() (err error) {
	if o.Blocks, err = env.Int(env.EPBlocks, 0, 0, 1<<16); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	switch mode := env.Get(env.EPLaunchConfigMode); mode {
	case "", "MANUAL":
	case "AUTO":
		o.Tuning, err = launch.TuningFromEnv()
	default:
		err = fmt.Errorf("%s=%q: want MANUAL or AUTO: %w", env.EPLaunchConfigMode, mode, ErrConfig)
	}
	return err
}
