// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"time"

	env "mori/core/config"
	"mori/ep/internal/launch"
	"mori/shmem"
)

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
		return o, fmt.Errorf("%s=gpu, and the symmetric heap is in host memory: %w", env.EPDevice, ErrConfig)
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
