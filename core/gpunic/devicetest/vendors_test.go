// SPDX-License-Identifier: MIT

package devicetest

import (
	"errors"
	"fmt"
	"testing"

	"mori/core/gpunic/bnxt"
	"mori/core/gpunic/emu"
	"mori/core/gpunic/ionic"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
	"mori/native/abi"
	"mori/native/nic"
)

// A vendor is how the queues of a NIC are written, and what follows from that.
type vendor struct {
	name         string
	family       string // of emu.Options
	inline       int    // bytes that an entry takes along
	kinds        int    // of work, from Write on: bnxt and ionic have no masked atomics
	remoteAccess uint64 // the status of these errors
	retry        uint64
}

var vendors = []vendor{
	{"mlx5", "", 92, 9, uint64(mlx5.SyndromeRemoteAccess), uint64(mlx5.SyndromeRetry)},
	{"bnxt", "bnxt", bnxt.MaxInline, 7, uint64(bnxt.StatusRemoteAccess), uint64(bnxt.StatusRetry)},
	{"ionic1", "ionic1", ionic.MaxInline, 7, ionic.CQESendMSN<<8 | uint64(ionic.StatusRemoteAccess), ionic.CQESendMSN<<8 | uint64(ionic.StatusRetry)},
	{"ionic2", "ionic2", ionic.MaxInline, 7, ionic.CQESendMSN<<8 | uint64(ionic.StatusRemoteAccess), ionic.CQESendMSN<<8 | uint64(ionic.StatusRetry)},
}

// seeded is what a seed makes of a setup.
func (v *vendor) seeded(seed uint64) setup {
	s := setup{
		vendor: v, wire: wires[seed%3], seed: seed, bytes: 64 << 10, path: mlx5.PathConfig{AckTimeout: 15},
		queue: mlx5.QueueConfig{SQLog: 3 + uint32(seed%3), Collapsed: seed%4 == 3, NoDBR: seed%5 == 4},
	}
	if v.family != "" {
		s.queue.Collapsed, s.queue.NoDBR, s.queue.CQLog = false, false, s.queue.SQLog
	}
	if v.family == "bnxt" {
		s.queue.SQLog += 2 // see emu.Options
	}
	return s
}

// each runs a test for each vendor and seed: mlx5 with all seeds, the others with every so manieth,
// the versions of ionic in turns.
func each(t *testing.T, every uint64, test func(t *testing.T, s setup)) {
	for _, seed := range seeds(t) {
		chosen := []*vendor{&vendors[0]}
		if seed%every == 0 {
			chosen = append(chosen, &vendors[1], &vendors[2+(seed+1)%2])
		}
		for _, v := range chosen {
			s := v.seeded(seed)
			t.Run(fmt.Sprintf("%s, seed %d on %s", v.name, seed, s.wire), func(t *testing.T) { test(t, s) })
		}
	}
}

// vendorView makes what the device knows of another vendor's queue, in the memory that the queue
// has, with an annex behind the view.
func (e *side) vendorView(s *setup) {
	e.t.Helper()
	v := e.Queue.View()
	v.SQLog, v.DBR, v.Provider = s.queue.CQLog, 0, uint32(abi.NICProviderIonic)
	annex := abi.NICAnnex{CQN: e.Queue.CQN(), Spare: 1 + uint32(s.seed%3), Version: 1}
	switch s.vendor.family {
	case "bnxt":
		v.Provider = uint32(abi.NICProviderBnxt)
		annex.MSN, annex.PSN = v.SQ+bnxt.EntryBytes<<v.SQLog, uint64(e.Queue.End().PSN)
	case "ionic2":
		annex.Version = 2
	}
	const keptAt = abi.NICQueueBytes + abi.NICAnnexBytes
	b, err := sys.Alloc(keptAt + 4<<v.SQLog)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = sys.Free(b) })
	e.view = sys.AddrOf(b)
	v.Kept = e.view + keptAt
	copy(b, append(abi.Bytes(&v), abi.Bytes(&annex)...))
}

// TestTheTableOfPacketsIsRead: a poster that is out of step with the NIC's packets gets an error.
func TestTheTableOfPacketsIsRead(t *testing.T) {
	a, b := pair(t, vendors[1].seeded(0))
	sys.Slice[abi.NICAnnex](a.view+abi.NICQueueBytes, 1)[0].PSN++
	out, err := nic.Run(grid, nic.Interchange{
		Queue: a.view, Limit: patience, Mine: a.memory(), Peer: b.memory(), Bytes: 1024, Rounds: 1, Value: 42,
	})
	if err != nil || out.Status != uint64(bnxt.StatusOperation) || len(a.nic.Violations()) == 0 || b.Mem[0] != 0 {
		t.Errorf("%v, %v, of the NIC: %v", err, out.Err(), a.nic.Violations())
	}
}

// TestUnknownFamily: there is no such NIC.
func TestUnknownFamily(t *testing.T) {
	if n, err := emu.New(emu.Options{Family: "mlx4"}); !errors.Is(err, mlx5.ErrArgument) {
		t.Errorf("%v, %v", n, err)
	}
}
