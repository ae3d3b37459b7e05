// SPDX-License-Identifier: MIT

package devicetest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/gpunic/mlx5/mlx5test"
	"mori/core/internal/sys"
	"mori/native/abi"
	"mori/native/nic"
)

// TestInterchange: both sides fill, write, ring and poll at once, and find the other's value.
func TestInterchange(t *testing.T) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed %d on %s", seed, wires[seed%3]), func(t *testing.T) {
			s := vendors[0].seeded(seed)
			s.access = mlx5.AccessRelaxed
			a, b := pair(t, s)
			sides := []*side{a, b}
			const n, rounds = 1024, 3
			var group sync.WaitGroup
			errs := make([]error, 2)
			for i, me := range sides {
				group.Add(1)
				go func() {
					defer group.Done()
					// What arrives lies behind what is sent.
					peer := sides[1-i].memory()
					peer.Addr += 4096
					out, err := nic.Run(grid, nic.Interchange{
						Queue: me.view, Limit: patience, Mine: me.memory(), Peer: peer, Bytes: n, Rounds: rounds, Value: byte(42 + i), Rank: uint32(i),
					})
					if errs[i] = errors.Join(err, out.Err()); errs[i] == nil && out.Done != rounds*uint64(grid.Blocks) {
						errs[i] = fmt.Errorf("%d rounds were made", out.Done)
					}
				}()
			}
			group.Wait()
			for i, err := range errs {
				if err != nil {
					t.Errorf("side %d: %v", i, err)
				}
				if out := sides[i].run(grid, nic.Verify{Memory: sides[i].Addr(4096), Bytes: n, Value: byte(43 - i)}); out.Wrong != 0 {
					t.Errorf("side %d has %d wrong bytes", i, out.Wrong)
				}
				if sides[i].Mem[4096+n] != 0 {
					t.Errorf("side %d has a byte too many", i)
				}
			}
			clean(t, a, b)
		})
	}
}

// TestPingPong: both sides post at once, and the side that sees the flag sees the payload.
func TestPingPong(t *testing.T) {
	each(t, 3, func(t *testing.T, s setup) {
		a, b := pair(t, s)
		sides := []*side{a, b}
		const rounds, inbox = 3, 8192
		var group sync.WaitGroup
		outs, errs := make([]nic.Outcome, 2), make([]error, 2)
		for i, me := range sides {
			group.Add(1)
			go func() {
				defer group.Done()
				at := func(m abi.NICMemory) abi.NICMemory { m.Addr += inbox; return m }
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

// TestSendsAndImmediates: the peer's receives get what a kernel sends, in the order of one poster.
func TestSendsAndImmediates(t *testing.T) {
	s := setup{vendor: &vendors[0], wire: "unix", bytes: 8192, queue: mlx5.QueueConfig{SQLog: 4, RQLog: 4}}
	a, b := pair(t, s)
	recv := mlx5test.NewReceiver(b.Queue)
	for i := range 3 {
		if err := recv.Post(mlx5test.Span{Addr: b.Addr(1024 * i), N: 1024, Key: b.memory().LKey}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		a.Mem[i] = byte(i + 1)
	}
	l := &list{a: a, b: b, work: []abi.NICWork{
		{Kind: abi.NICKindSend, Local: a.Addr(0), Bytes: 100, LKey: a.memory().LKey},
		{Kind: abi.NICKindSend, Flags: abi.NICImmediate | abi.NICSolicited, Immediate: 0xdecade},
		{Kind: abi.NICKindWrite, Flags: abi.NICImmediate, Immediate: 7, Local: a.Addr(0), Remote: b.Addr(4096), Bytes: 50, LKey: a.memory().LKey, RKey: b.memory().RKey},
	}}
	a.run(nic.Grid{Blocks: 1, Threads: nic.WarpThreads}, nic.Post{
		Queue: a.view, Limit: patience, Work: l.raw(t), Count: 3, Posters: abi.NICPostersBlock,
	})
	for i, want := range []struct {
		opcode uint8
		imm    uint32
		bytes  uint32
	}{{mlx5.CQERecvSend, 0, 100}, {mlx5.CQERecvSendImm, 0xdecade, 0}, {mlx5.CQERecvImm, 7, 50}} {
		c, err := recv.Next(patience)
		if err != nil {
			t.Fatal(err)
		}
		if c.Opcode != want.opcode || c.Imm != want.imm || c.Bytes != want.bytes {
			t.Errorf("completion %d is %+v, want %+v", i, c, want)
		}
	}
	if !bytes.Equal(b.Mem[:100], a.Mem[:100]) || !bytes.Equal(b.Mem[4096:4146], a.Mem[:50]) {
		t.Error("what was sent is not what came")
	}
	clean(t, a, b)
}

// TestErrorsEndAllPosters: an error of one WQE is reported to all posters of its queue, with the
// vendor's status, and no poster hangs.
func TestErrorsEndAllPosters(t *testing.T) {
	for i := range vendors {
		v := &vendors[i]
		for posters := abi.NICPostersThread; posters <= abi.NICPostersLanes; posters++ {
			s := v.seeded(uint64(posters))
			s.chaos = func(c *emu.Chaos) { c.Loss = 0 } // the peer says once why it ends
			a, b := pair(t, s)
			l := &list{a: a, b: b}
			for i := range 60 {
				l.work = append(l.work, abi.NICWork{Kind: abi.NICKindWrite, Local: a.Addr(0), Remote: b.Addr(64 * i), Bytes: 64, LKey: a.memory().LKey, RKey: b.memory().RKey})
			}
			l.work[23].RKey ^= 0x100
			post := nic.Post{Queue: a.view, Limit: patience, Work: l.raw(t), Count: 60, Posters: posters}
			want := v.remoteAccess
			if s.queue.Collapsed { // shows the last completion only
				want = uint64(mlx5.SyndromeFlush)
			}
			out, err := nic.Run(grid, post)
			if err != nil || out.Status != v.remoteAccess && out.Status != want || !errors.Is(out.Err(), nic.ErrCompletion) || out.Report.Count != 0 {
				t.Errorf("%s by %d: %v, %v, %+v", v.name, posters, err, out.Err(), out)
			}
			again, _ := nic.Run(grid, post)
			if again.Status != a.state().Status || again.Done != 0 {
				t.Errorf("%s by %d: the dead queue ended %+v", v.name, posters, again)
			}
			clean(t, b)
		}
	}
}

// TestNoPeer: retries end, and the kernel with them.
func TestNoPeer(t *testing.T) {
	for i := range vendors {
		s := vendors[i].seeded(0)
		s.wire, s.path = "unix", mlx5.PathConfig{AckTimeout: 8, Retries: 2}
		s.chaos = func(c *emu.Chaos) { c.Loss = 1000 }
		a, b := pair(t, s)
		out, err := nic.Run(grid, nic.Interchange{
			Queue: a.view, Limit: patience, Mine: a.memory(), Peer: b.memory(), Bytes: 1024, Rounds: 1, Value: 42,
		})
		if err != nil || out.Status != vendors[i].retry {
			t.Errorf("%s: %v, %v", vendors[i].name, err, out.Err())
		}
	}
}

// TestQueueThatIsNotConnected: nothing happens, and the kernel ends by its limit.
func TestQueueThatIsNotConnected(t *testing.T) {
	s := vendors[0].seeded(0)
	n, dev := open(t, &s, 0)
	a := newSide(t, n, dev, &s)
	out, err := nic.Run(nic.Grid{Blocks: 1, Threads: 4}, nic.Interchange{
		Queue: a.view, Limit: 30 * time.Millisecond, Mine: a.memory(), Peer: a.memory(), Bytes: 16, Rounds: 1, Value: 42,
	})
	if err != nil || !errors.Is(out.Err(), nic.ErrTimedOut) {
		t.Errorf("%v, %v", err, out.Err())
	}
}

// TestViewIsTheDevices: what the host writes for the device is what the device's structs say.
func TestViewIsTheDevices(t *testing.T) {
	s := vendors[0].seeded(0)
	n, dev := open(t, &s, 0)
	a := newSide(t, n, dev, &s)
	v := a.Queue.View()
	if got := a.state(); got != v {
		t.Errorf("in memory is %+v, want %+v", got, v)
	}
	if a.view%64 != 0 || v.SQ%64 != 0 || v.CQ%64 != 0 || v.UAR%8 != 0 || sys.Load64(v.UAR) != 0 {
		t.Errorf("%+v at %#x is not aligned", v, a.view)
	}
}
