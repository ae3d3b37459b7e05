// SPDX-License-Identifier: MIT

package devicetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"mori/core/gpunic/bnxt"
	"mori/core/gpunic/emu"
	"mori/core/gpunic/ionic"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
	"mori/native/nic"
)

// families are those that the emulated NIC has beside mlx5.
var families = []string{"bnxt", "ionic1", "ionic2"}

func familyInline(family string) int {
	if family == "bnxt" {
		return bnxt.MaxInline
	}
	return ionic.MaxInline
}

// familySeeded is what a seed makes of a setup of a family.
func familySeeded(family string, seed uint64) setup {
	s := seeded(seed)
	s.family, s.queue = family, mlx5.QueueConfig{SQLog: 3 + uint32(seed%3)}
	s.queue.CQLog = s.queue.SQLog
	if family == "bnxt" {
		s.queue.SQLog += 2 // see emu.Options
	}
	return s
}

// familyView makes what the device knows of a family's queue: of the memory that the queue has,
// with an annex behind the view.
func (e *side) familyView(s *setup) {
	e.t.Helper()
	v := e.queue.View()
	v.SQLog, v.DBR, v.Provider = s.queue.CQLog, 0, mlx5.ProviderIonic
	annex := mlx5.AnnexView{CQN: e.queue.CQN(), Spare: 1 + uint32(s.seed%3), Version: 1}
	switch s.family {
	case "bnxt":
		v.Provider = mlx5.ProviderBnxt
		annex.MSN, annex.PSN = v.SQ+bnxt.EntryBytes<<v.SQLog, uint64(e.queue.End().PSN)
	case "ionic2":
		annex.Version = 2
	}
	const keptAt = mlx5.QueueViewBytes + mlx5.AnnexViewBytes
	b, err := sys.Alloc(keptAt + 4<<v.SQLog)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = sys.Free(b) })
	e.view = sys.AddrOf(b)
	v.Kept = e.view + keptAt
	v.Put(b)
	annex.Put(b[mlx5.QueueViewBytes:])
}

// eachFamily runs a test for each family and every so manieth seed; odd seeds are for the first
// version of ionic.
func eachFamily(t *testing.T, every uint64, test func(t *testing.T, s setup)) {
	for _, seed := range seeds(t) {
		for _, family := range []string{"bnxt", families[1+(seed+1)%2]} {
			if seed%every == 0 {
				s := familySeeded(family, seed)
				t.Run(fmt.Sprintf("%s, seed %d on %s", family, seed, s.wire), func(t *testing.T) { test(t, s) })
			}
		}
	}
}

// TestListsOfFamilies is TestLists for the other families.
func TestListsOfFamilies(t *testing.T) {
	eachFamily(t, 1, runList)
}

// TestPingPongOfFamilies: both sides post at once, and who sees the flag sees the payload.
func TestPingPongOfFamilies(t *testing.T) {
	eachFamily(t, 3, func(t *testing.T, s setup) {
		a, b := pair(t, s)
		sides := []*side{a, b}
		const rounds, inbox = 3, 8192
		var group sync.WaitGroup
		outs, errs := make([]nic.Outcome, 2), make([]error, 2)
		for i, me := range sides {
			group.Add(1)
			go func() {
				defer group.Done()
				at := func(m nic.Memory) nic.Memory { m.Addr += inbox; return m }
				outs[i], errs[i] = nic.Run(nic.Grid{Blocks: 1, Threads: 8}, nic.PingPong{
					Queue: me.view, Limit: patience, Mine: me.memory(), Inbox: at(me.memory()), Peer: at(sides[1-i].memory()),
					Flag: 4096, Bytes: 1000, Rounds: rounds, Begins: i == 0, Atomic: s.seed%2 == 0,
				})
			}()
		}
		group.Wait()
		for i, out := range outs {
			if err := errors.Join(errs[i], out.Err()); err != nil || out.Done != rounds || out.Wrong != 0 {
				t.Errorf("side %d: %v, %d rounds, %d wrong bytes", i, err, out.Done, out.Wrong)
			}
		}
		clean(t, a, b)
	})
}

// TestErrorsOfFamilies: an error is reported to all posters, by the family's own status.
func TestErrorsOfFamilies(t *testing.T) {
	want := map[string]uint64{
		"bnxt": uint64(bnxt.StatusRemoteAccess), "ionic1": ionic.CQESendMSN<<8 | uint64(ionic.StatusRemoteAccess),
		"ionic2": ionic.CQESendMSN<<8 | uint64(ionic.StatusRemoteAccess),
	}
	for _, family := range families {
		for posters := nic.Threads; posters <= nic.Lanes; posters++ {
			s := familySeeded(family, uint64(posters))
			s.chaos = func(c *emu.Chaos) { c.Loss = 0 } // the peer says once why it ends
			a, b := pair(t, s)
			l := &list{a: a, b: b}
			for i := range 60 {
				l.work = append(l.work, nic.Work{Kind: nic.Write, Local: a.addr(0), Remote: b.addr(64 * i), Bytes: 64, LKey: a.memory().LKey, RKey: b.memory().RKey})
			}
			l.work[23].RKey ^= 0x100
			out, err := nic.Run(grid, nic.Post{Queue: a.view, Limit: patience, Work: l.raw(t), Count: 60, Posters: posters})
			if err != nil || out.Status != want[family] || out.Report.Count != 0 {
				t.Errorf("%s by %d: %v, %v, %+v", family, posters, err, out.Err(), out)
			}
			clean(t, b)
		}
	}
}

// TestNoPeerOfFamilies: retries end, and the kernel with them.
func TestNoPeerOfFamilies(t *testing.T) {
	want := map[string]uint64{"bnxt": uint64(bnxt.StatusRetry), "ionic1": 0x200 | uint64(ionic.StatusRetry), "ionic2": 0x200 | uint64(ionic.StatusRetry)}
	for _, family := range families {
		s := familySeeded(family, 0)
		s.wire, s.path = "unix", mlx5.PathConfig{AckTimeout: 8, Retries: 2}
		s.chaos = func(c *emu.Chaos) { c.Loss = 1000 }
		a, b := pair(t, s)
		out, err := nic.Run(grid, nic.Interchange{
			Queue: a.view, Limit: patience, Mine: a.memory(), Peer: b.memory(), Bytes: 1024, Rounds: 1, Value: 42,
		})
		if err != nil || out.Status != want[family] {
			t.Errorf("%s: %v, %v", family, err, out.Err())
		}
	}
}

// TestTheTableOfPacketsIsRead: a poster that is out of step with the NIC's packets gets an error.
func TestTheTableOfPacketsIsRead(t *testing.T) {
	a, b := pair(t, familySeeded("bnxt", 0))
	psn := a.view + mlx5.QueueViewBytes + 64 // AnnexView.PSN
	sys.Store64(psn, sys.Load64(psn)+1)
	out, err := nic.Run(grid, nic.Interchange{
		Queue: a.view, Limit: patience, Mine: a.memory(), Peer: b.memory(), Bytes: 1024, Rounds: 1, Value: 42,
	})
	if err != nil || out.Status != uint64(bnxt.StatusOperation) || len(a.nic.Violations()) == 0 || b.mem[0] != 0 {
		t.Errorf("%v, %v, of the NIC: %v", err, out.Err(), a.nic.Violations())
	}
}

// TestUnknownFamily: there is no such NIC.
func TestUnknownFamily(t *testing.T) {
	if n, err := emu.New(emu.Options{Family: "mlx4"}); !errors.Is(err, mlx5.ErrArgument) {
		t.Errorf("%v, %v", n, err)
	}
}
