// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"time"

	env "mori/core/config"
	"mori/shmem"
)

// The defaults of Options.
const (
	defaultTimeout     = 30 * time.Second
	defaultScaleBlocks = 56
)

// OptionsFromEnv reads MORI_EP_TIMEOUT_MS, MORI_EP_DEVICE, MORI_EP_THREADS and MORI_FP8_COMBINE_SCALE_DIM. By default the PEs of a host share its
// processors evenly.
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
	o.ScaleBlocks, err = env.Int(env.FP8CombineScaleDim, defaultScaleBlocks, 1, 1<<20)
	return o, err
}
