// SPDX-License-Identifier: MIT

package ep

import (
	"testing"

	"mori/ep/internal/gpu"
	"mori/ep/internal/launch"
)

// A call on a GPU gets what it asks for, else what the first other source has.
func TestLaunchesOnGPUs(t *testing.T) {
	cfg := gpuConfig(1)
	device := ""
	onGPUs(t, cfg, Options{}, func(j *gpuJob) error { device = j.dev.Name; return nil })
	rule := func(rowBytes int, l Launch) launch.Rule {
		return launch.Rule{Call: "dispatch", RowBytes: rowBytes, Tokens: 4, Blocks: l.Blocks, Warps: l.Warps, US: 1}
	}
	shape := func(blocks, warps int) Launch { return Launch{Blocks: blocks, Warps: warps} }
	tuned := &Tuning{Version: launch.TuningVersion, Tables: []Table{
		{Device: "another", Ranks: 1, Rules: []launch.Rule{rule(4, shape(1, 1))}},
		{Device: device, Ranks: 1, Rules: []launch.Rule{rule(4, shape(7, 3)), rule(4096, shape(5, 2))}},
	}}
	configured := cfg
	configured.BlockNum, configured.WarpNumPerBlock = 6, 5
	for name, c := range map[string]struct {
		cfg      Config
		opts     Options
		dispatch bool
		asked    Launch
		want     Launch
	}{
		"the tables":             {cfg, Options{Tuning: tuned}, true, Launch{}, shape(7, 3)},
		"the call":               {configured, Options{Tuning: tuned}, true, shape(2, 1), shape(2, 1)},
		"the call, in part":      {configured, Options{Tuning: tuned}, true, shape(2, 0), shape(2, 3)},
		"the configuration":      {configured, Options{}, true, Launch{}, shape(6, 5)},
		"no table for this call": {configured, Options{Tuning: tuned}, false, Launch{}, shape(6, 5)},
		"the budget":             {cfg, Options{Blocks: 1}, true, Launch{}, shape(1, 4)},
	} {
		onGPUs(t, c.cfg, c.opts, func(j *gpuJob) error {
			for range 2 { // the second choice is remembered
				want := shape(min(c.want.Blocks, j.dev.Units), min(c.want.Warps, gpu.MostThreads/j.dev.Warp))
				if got := j.gpu.LaunchOf(c.dispatch, c.asked, 3, 16); got != want {
					t.Errorf("%s: %+v, want %+v", name, got, want)
				}
			}
			if got := j.host.LaunchOf(c.dispatch, c.asked, 3, 16); got != (Launch{}) {
				t.Errorf("%s: on host memory %+v", name, got)
			}
			return nil
		})
	}
}
