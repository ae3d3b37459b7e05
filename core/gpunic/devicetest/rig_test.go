// SPDX-License-Identifier: MIT

package devicetest

import (
	"os"
	"testing"
	"time"

	"mori/core/fabric/fabrictest"
	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/gpunic/mlx5/mlx5test"
	"mori/core/internal/sys"
	"mori/native/abi"
	"mori/native/nic"
)

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m)) }

// patience ends what would hang.
const patience = 20 * time.Second

var wires = []string{"loop", "unix", "tcp"}

// grid is two blocks of two warps.
var grid = nic.Grid{Blocks: 2, Threads: 2 * nic.WarpThreads}

// A side is one end of a connection, with memory that both ends may use.
type side struct {
	mlx5test.End
	t    *testing.T
	nic  *emu.NIC
	view uint64 // address of what the device knows of the queue
}

// memory is the side's region as kernels see it.
func (s *side) memory() abi.NICMemory { return s.Region.View() }

// state is the queue's view as the device has left it.
func (s *side) state() abi.NICQueue {
	return sys.Slice[abi.NICQueue](s.view, 1)[0]
}

// run runs a kernel that must do all it should.
func (s *side) run(g nic.Grid, a nic.Args) nic.Outcome {
	s.t.Helper()
	out, err := nic.Run(g, a)
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		s.t.Fatalf("%s: %v (of the NIC: %v)", a.Kernel(), err, s.nic.Violations())
	}
	return out
}

// A setup is what a pair of sides is like.
type setup struct {
	vendor *vendor
	wire   string
	seed   uint64 // of the chaos, 0 for none
	queue  mlx5.QueueConfig
	bytes  int
	access mlx5.Access // beside AccessAll
	path   mlx5.PathConfig
	chaos  func(*emu.Chaos)
}

func open(t *testing.T, s *setup, n uint64) (*emu.NIC, *mlx5.Device) {
	t.Helper()
	chaos := emu.Profile(s.seed)
	if s.chaos != nil {
		s.chaos(&chaos)
	}
	n0, err := emu.New(emu.Options{Wire: s.wire, Family: s.vendor.family, Seed: s.seed + 1000*n, Chaos: chaos, MTU: []int{256, 1024, 4096}[s.seed%3]})
	if err != nil {
		t.Fatal(err)
	}
	return n0, mlx5test.Open(t, n0)
}

func newSide(t *testing.T, n *emu.NIC, dev *mlx5.Device, s *setup) *side {
	t.Helper()
	e := &side{End: mlx5test.NewEnd(t, dev, s.queue, s.bytes, mlx5.AccessAll|s.access), t: t, nic: n}
	if e.view = e.Queue.ViewAddr(); s.vendor.family != "" {
		e.vendorView(s)
	}
	return e
}

// pair opens two connected sides: on one NIC if the wire is a loop, else on two.
func pair(t *testing.T, s setup) (a, b *side) {
	t.Helper()
	n, dev := open(t, &s, 0)
	a = newSide(t, n, dev, &s)
	if s.wire != "loop" {
		n, dev = open(t, &s, 1)
	}
	b = newSide(t, n, dev, &s)
	mlx5test.Connect(t, &a.End, &b.End, s.path)
	return a, b
}

// clean fails the test if a NIC had reason to complain of the device.
func clean(t *testing.T, sides ...*side) {
	t.Helper()
	for _, s := range sides {
		for _, v := range s.nic.Violations() {
			t.Errorf("a rule was broken: %s", v)
		}
	}
}

// seeds are those of the chaos, and 0 for none of it.
func seeds(t *testing.T) []uint64 {
	n := uint64(20)
	if testing.Short() {
		n = 3
	}
	all := make([]uint64, n+1)
	for i := range all {
		all[i] = uint64(i)
	}
	return all
}
