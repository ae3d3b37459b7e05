// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"mori/core/bootstrap/launcher"
	"mori/core/config"
	"mori/core/device"
)

// deviceFromEnv is the GPU whose memory the heap is to be of, nil for host memory: if nothing is
// said, a GPU where there is one.
func deviceFromEnv() (*device.Device, error) {
	text := config.Get(config.ShmemDevice)
	must := false
	switch v := strings.ToLower(strings.TrimSpace(text)); v {
	case "":
	case "host":
		return nil, nil
	case "gpu":
		must = true
	default:
		return nil, fmt.Errorf("%s=%q: want host or gpu: %w", config.ShmemDevice, text, ErrInvalid)
	}
	all, err := device.Devices()
	switch {
	case err == nil:
		return choose(all)
	case must:
		return nil, fmt.Errorf("%s=%s: %w", config.ShmemDevice, text, err)
	case errors.Is(err, errors.ErrUnsupported):
		return nil, nil
	}
	return nil, fmt.Errorf("find the GPU for the symmetric heap (%s=host needs none): %w", config.ShmemDevice, err)
}

// choose is which of the GPUs: what the user says, the one current on the calling thread, or the
// one of the process's place on its host.
func choose(all []*device.Device) (*device.Device, error) {
	if config.Get(config.ShmemGPU) != "" {
		i, err := config.Int(config.ShmemGPU, 0, 0, math.MaxInt32)
		if err == nil && i >= len(all) {
			err = fmt.Errorf("%s=%d: there are %d GPUs", config.ShmemGPU, i, len(all))
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, ErrInvalid)
		}
		return all[i], nil
	}
	d, err := device.Current()
	if d != nil || err != nil {
		return d, err
	}
	launch, ok, err := launcher.Find()
	if err != nil || !ok {
		return all[0], nil // bootstrap reports a launcher that contradicts itself
	}
	place := launch.LocalRank
	if place < 0 {
		place = launch.Rank
	}
	return all[place%len(all)], nil
}
