// SPDX-License-Identifier: MIT

package core

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mori/core/config"
	rdma "mori/core/provider/verbs"
	"mori/core/topology"
	"mori/native/verbs/verbstest"
)

// TestSettingsOfWishes: what is asked for within what devices are opened with, and all that is
// asked for in excess is cut.
func TestSettingsOfWishes(t *testing.T) {
	verbstest.NeedEmulated(t)
	verbstest.Need(t, 2)
	quiet := &oneTime{log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	both := rdma.Settings{Devices: []string{"emu0:1", "emu1:1"}, Indices: []int{0, 1}, GIDIndex: -1}
	with := func(change func(*rdma.Settings)) rdma.Settings {
		s := both
		change(&s)
		return s
	}
	any := AnyNIC()
	for what, c := range map[string]struct {
		env  []string
		use  NICUse
		want rdma.Settings
	}{
		"no wish": {nil, any, both},
		"some": {nil, NICUse{NUMA: -1, NICs: 2, QPs: 4, Polling: true, SendWR: 5, SendSGE: 6, RecvWR: 7, CQE: 8, PostBatch: 9, Inline: -1, SL: 1, TC: 2, NoEvents: true},
			with(func(s *rdma.Settings) {
				s.Rails, s.QPs, s.Polling, s.SendWR, s.SendSGE, s.RecvWR, s.CQE, s.PostBatch, s.Inline = 2, 4, true, 5, 6, 7, 8, 9, -1
				s.SL, s.TrafficClass, s.NoEvents = 1, 2, true
			})},
		"too much": {nil, NICUse{NICs: 99, QPs: 99, SendWR: 1 << 20, SendSGE: 99, RecvWR: 1 << 20, Inline: 1 << 20, SL: -1, TC: -1},
			with(func(s *rdma.Settings) {
				s.Rails, s.QPs, s.SendWR, s.SendSGE, s.RecvWR, s.Inline = 8, 16, 1<<16, 64, 1<<15, 4096
			})},
		"nonsense": {nil, NICUse{NICs: -5, QPs: -5, SendWR: -5, SendSGE: -5, RecvWR: -5, CQE: -5, PostBatch: -1, SL: -1, TC: -1}, both},
		"the environment": {
			[]string{config.IBGIDIndex, "2", config.IBPathMTU, "256", config.IBRelaxedOrdering, "1", config.RDMASL, "3", config.RDMATC, "104", config.IORailAffinity, "1",
				config.EnableDMABufReg, "1"}, any,
			with(func(s *rdma.Settings) {
				s.GIDIndex, s.MTU, s.Relaxed, s.SL, s.TrafficClass, s.Affinity, s.DMABuf = 2, 256, true, 3, 104, true, true
			}),
		},
		"a wish beats it": {[]string{config.RDMASL, "3", config.RDMATC, "104"}, NICUse{NUMA: -1, SL: 0, TC: 8}, with(func(s *rdma.Settings) { s.TrafficClass = 8 })},
		"by name":         {[]string{config.RDMADevices, "emu1"}, any, rdma.Settings{Devices: []string{"emu1:1"}, Indices: []int{0}, GIDIndex: -1}},
		"by rank on the host": {[]string{"RANK", "5", "WORLD_SIZE", "8", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "4", "MASTER_ADDR", "here", "MASTER_PORT", "1"}, any,
			rdma.Settings{Devices: []string{"emu1:1", "emu0:1"}, Indices: []int{1, 0}, GIDIndex: -1}},
		"by rank alone": {[]string{config.BootstrapRank, "3", config.BootstrapSize, "4"}, any,
			rdma.Settings{Devices: []string{"emu1:1", "emu0:1"}, Indices: []int{1, 0}, GIDIndex: -1}},
		"a launcher that contradicts itself": {[]string{config.BootstrapRank, "4", config.BootstrapSize, "4"}, any, both},
		"pinned":                             {[]string{config.IORDMANICIdx, "1"}, any, rdma.Settings{Devices: []string{"emu1:1"}, Indices: []int{1}, GIDIndex: -1}},
		"malformed": {
			[]string{config.IBGIDIndex, "x", config.IBPathMTU, "1500", config.RDMASL, "16", config.RDMATC, "256", config.IORDMANICIdx, "first"}, any, both,
		},
	} {
		t.Run(what, func(t *testing.T) {
			for i := 0; i < len(c.env); i += 2 {
				t.Setenv(c.env[i], c.env[i+1])
			}
			got, err := c.use.settings(quiet)
			if len(got.Why) != len(got.Devices) || slices.Contains(got.Why, "") {
				t.Errorf("why these devices: %q", got.Why)
			}
			if got.Why = nil; err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v, want\n%+v", got, err, c.want)
			}
		})
	}
}

// TestMalformedSettingsAreLogged, each by its name, once.
func TestMalformedSettingsAreLogged(t *testing.T) {
	verbstest.NeedEmulated(t)
	names := []string{config.IBGIDIndex, config.IBPathMTU, config.RDMASL, config.RDMATC, config.IORDMANICIdx}
	for _, name := range names {
		t.Setenv(name, "wrong")
	}
	var log bytes.Buffer
	one := &oneTime{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		if _, err := AnyNIC().settings(one); err != nil {
			t.Error(err)
		}
	}
	for _, name := range names {
		if n := strings.Count(log.String(), name+"="); n != 1 {
			t.Errorf("%s is in the log %d times: %s", name, n, log.String())
		}
	}
}

// TestNoDeviceForTheSettings: the error names what the host has.
func TestNoDeviceForTheSettings(t *testing.T) {
	verbstest.NeedEmulated(t)
	quiet := &oneTime{log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	t.Setenv(config.RDMADevices, "emu0,mlx5_9")
	if _, err := AnyNIC().settings(quiet); !errors.Is(err, topology.ErrUnknown) || !strings.Contains(err.Error(), "names mlx5_9, but this host has emu0, emu1") {
		t.Error(err)
	}
}
