// SPDX-License-Identifier: MIT

package emu_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"mori/core/fabric/fabrictest"
	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/gpunic/mlx5/mlx5test"
)

func TestMain(m *testing.M) {
	if wire := os.Getenv(childWire); wire != "" {
		if err := child(wire); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(fabrictest.Main(m))
}

// patience is how long a test waits for what must come: machines may be slow, and a hang is found
// all the same.
const patience = 30 * time.Second

// A side is one end of a connection, with what posts to its queue.
type side struct {
	mlx5test.End
	nic  *emu.NIC
	dev  *mlx5.Device
	post *mlx5test.Poster
	recv *mlx5test.Receiver
}

func openNIC(t testing.TB, opts emu.Options) (*emu.NIC, *mlx5.Device) {
	t.Helper()
	nic, err := emu.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return nic, mlx5test.Open(t, nic)
}

func newSide(t testing.TB, nic *emu.NIC, dev *mlx5.Device, cfg mlx5.QueueConfig, bytes int, access mlx5.Access) *side {
	t.Helper()
	s := &side{End: mlx5test.NewEnd(t, dev, cfg, bytes, access), nic: nic, dev: dev}
	s.post = mlx5test.NewPoster(s.Queue)
	if cfg.RQLog > 0 {
		s.recv = mlx5test.NewReceiver(s.Queue)
	}
	return s
}

// A setup is what a pair of sides is like.
type setup struct {
	opts  emu.Options
	queue mlx5.QueueConfig
	path  mlx5.PathConfig
	bytes int
	also  mlx5.Access
}

// pair opens two connected sides: on one NIC if the wire is a loop, else on two.
func pair(t testing.TB, s setup) (a, b *side) {
	t.Helper()
	if s.queue.SQLog == 0 {
		s.queue.SQLog = 6
	}
	if s.bytes == 0 {
		s.bytes = 64 << 10
	}
	nic, dev := openNIC(t, s.opts)
	a = newSide(t, nic, dev, s.queue, s.bytes, mlx5.AccessAll|s.also)
	if s.opts.Wire == "unix" || s.opts.Wire == "tcp" {
		s.opts.Name, s.opts.Seed = "emu1", s.opts.Seed+1000
		nic, dev = openNIC(t, s.opts)
	}
	b = newSide(t, nic, dev, s.queue, s.bytes, mlx5.AccessAll|s.also)
	mlx5test.Connect(t, &a.End, &b.End, s.path)
	return a, b
}

// clean fails the test if a NIC had reason to complain.
func clean(t testing.TB, sides ...*side) {
	t.Helper()
	for _, s := range sides {
		for _, v := range s.nic.Violations() {
			t.Errorf("%s: %s", s.dev.Name(), v)
		}
	}
}
