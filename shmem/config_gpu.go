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

// deviceFromEnv returns the GPU for the heap, nil for host memory. If no variable is set, it is a
// GPU on hosts that have one.
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

// choose selects a GPU: the user's, else the one current on the calling thread, else by the
// process's local rank.
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
		return all[0], nil // bootstrap reports contradictory launcher variables
	}
	place := launch.LocalRank
	if place < 0 {
		place = launch.Rank
	}
	return all[place%len(all)], nil
}
