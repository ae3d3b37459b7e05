// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core"
	"mori/core/config"
	"mori/core/fabric"
	"mori/io/internal/batch"
	"mori/io/internal/transfer"
)

// A side is an engine with one region.
type side struct {
	*Engine
	mem  []byte
	desc MemoryDesc
}

func newSide(t testing.TB, key string, size int, kind BackendType, cfg *BackendConfig) *side {
	t.Helper()
	e, err := NewEngine(key, EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return newSideOf(t, e, size, kind, cfg)
}

func newSideOf(t testing.TB, e *Engine, size int, kind BackendType, cfg *BackendConfig) *side {
	t.Helper()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close %s: %v", e.self.Key, err)
		}
	})
	if err := e.CreateBackend(kind, cfg); err != nil {
		t.Fatal(err)
	}
	s := &side{Engine: e}
	var addr uint64
	var err error
	s.mem, addr = buffer(t, size)
	if s.desc, err = e.RegisterMemory(addr, uint64(size), -1, LocCPU); err != nil {
		t.Fatal(err)
	}
	return s
}

// pair returns two engines that are registered with each other, and a session from the first to the
// second.
func pair(t testing.TB, size int, kind BackendType, cfg *BackendConfig) (a, b *side, s *Session) {
	t.Helper()
	a, b = newSide(t, "a", size, kind, cfg), newSide(t, "b", size, kind, cfg)
	return a, b, meet(t, a, b)
}

// meet registers two engines with each other and returns a session from a to b.
func meet(t testing.TB, a, b *side) *Session {
	t.Helper()
	if err := errors.Join(a.RegisterRemoteEngine(b.Desc()), b.RegisterRemoteEngine(a.Desc())); err != nil {
		t.Fatal(err)
	}
	s, err := a.CreateSession(a.desc, b.desc)
	if err != nil || s == nil {
		t.Fatalf("session %v, %v", s, err)
	}
	return s
}

func fill(b []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// eachPath runs f over every path type of this machine.
func eachPath(t *testing.T, f func(t *testing.T, kind BackendType)) {
	for name, kind := range map[string]BackendType{"shm": BackendRDMA, "tcp": BackendTCP} {
		t.Run(name, func(t *testing.T) { f(t, kind) })
	}
	t.Run("verbs", func(t *testing.T) {
		overRDMA(t)
		f(t, BackendRDMA)
	})
}

func succeed(t testing.TB, st *Status) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if c := st.Wait(ctx); c != CodeSuccess {
		t.Fatalf("%v: %s", c, st.Message())
	}
}

func TestBytesArriveBothWays(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		const size = 9 << 20
		a, b, s := pair(t, size, kind, nil)
		fill(a.mem, 1)
		uid := a.AllocateTransferUID()
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{size}, uid))
		if !bytes.Equal(a.mem, b.mem) {
			t.Fatal("written bytes differ")
		}
		arrived(t, b.Engine, "a", uid)

		fill(b.mem, 2)
		var lo, ro, sz []uint64
		for i := range uint64(size / 4096) {
			lo, ro, sz = append(lo, i*4096), append(ro, (size/4096-1-i)*4096), append(sz, 4096)
		}
		uid = a.AllocateTransferUID()
		succeed(t, s.Read(lo, ro, sz, uid))
		for i := range lo {
			if !bytes.Equal(a.mem[lo[i]:lo[i]+sz[i]], b.mem[ro[i]:ro[i]+sz[i]]) {
				t.Fatalf("block %d of a read differs", i)
			}
		}
		arrived(t, b.Engine, "a", uid)
	})
}

// arrived waits until e has recorded the arrival. The notification may come just after the
// initiator's success.
func arrived(t testing.TB, e *Engine, from string, uid uint64) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !e.PopInbound(from, uid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("transfer %d of %q never arrived", uid, from)
		}
	}
	if !e.PopInbound(from, uid) || e.PopInbound(from, uid+1) || e.PopInbound("nobody", uid) {
		t.Error("asking consumed the arrival, or found one that never was")
	}
}

func TestEveryLengthAndOffset(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, s := pair(t, 70000, kind, nil)
		fill(a.mem, 3)
		for _, n := range []uint64{0, 1, 7, 8, 4095, 4096, 4097, 65536, 69999} {
			clear(b.mem)
			succeed(t, s.Write([]uint64{70000 - n}, []uint64{1}, []uint64{min(n, 69999)}, 9))
			if !bytes.Equal(b.mem[1:1+n], a.mem[70000-n:]) || b.mem[0] != 0 {
				t.Errorf("%d bytes differ", n)
			}
		}
	})
}

func TestEmptyBatchSucceeds(t *testing.T) {
	_, _, s := pair(t, 8, BackendRDMA, nil)
	if st := s.Write(nil, nil, nil, 1); st.Code() != CodeSuccess {
		t.Errorf("%v", st.Code())
	}
}

func TestBadEntriesTouchNothing(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, s := pair(t, 4096, kind, nil)
		fill(a.mem, 4)
		for _, st := range []*Status{
			s.Write([]uint64{0, 4096}, []uint64{0, 0}, []uint64{8, 1}, 1),
			s.Write([]uint64{0, 0}, []uint64{0, 4090}, []uint64{8, 7}, 1),
			s.Write([]uint64{0}, []uint64{0, 1}, []uint64{8}, 1),
			s.Write([]uint64{1<<64 - 1}, []uint64{0}, []uint64{2}, 1),
		} {
			if st.Code() != CodeErrInvalidArgs || !strings.Contains(st.Message(), "want equal counts") && !strings.Contains(st.Message(), "length out of range") {
				t.Errorf("%v %q", st.Code(), st.Message())
			}
		}
		if !bytes.Equal(b.mem, make([]byte, 4096)) {
			t.Error("a refused batch moved bytes")
		}
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 2))
	})
}

func TestSuccessComesInSubmissionOrder(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, b, big := pair(t, 16<<20, kind, nil)
		mem, addr := buffer(t, 64)
		_ = mem
		d, err := a.RegisterMemory(addr, 64, -1, LocCPU)
		if err != nil {
			t.Fatal(err)
		}
		small, err := a.CreateSession(d, b.desc)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			first := big.Read([]uint64{0}, []uint64{0}, []uint64{16 << 20}, 1)
			last := small.Read([]uint64{0}, []uint64{0}, []uint64{64}, 2)
			succeed(t, last)
			if c := first.Code(); c != CodeSuccess {
				t.Fatalf("the last of two reads is done, the first is %v", c)
			}
		}
	})
}

func TestManySubmitters(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		const workers, rounds, part = 8, 40, 32 << 10
		a, b, s := pair(t, workers*part, kind, nil)
		fill(a.mem, 5)
		var wg sync.WaitGroup
		for w := range uint64(workers) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range rounds {
					var lo, sz []uint64
					for i := range uint64(part / 1024) {
						lo, sz = append(lo, w*part+i*1024), append(sz, 1024)
					}
					succeed(t, s.Write(lo, lo, sz, a.AllocateTransferUID()))
				}
			}()
		}
		wg.Wait()
		if !bytes.Equal(a.mem, b.mem) {
			t.Error("bytes differ")
		}
		if c := a.Describe().Counters; c.Writes != workers*rounds || c.WriteBytes != workers*rounds*part {
			t.Errorf("counters %+v", c)
		}
	})
}

func TestMoreOpsThanTheQueueHolds(t *testing.T) {
	cfg := DefaultBackendConfig()
	cfg.EnableChunking, cfg.ChunkBytes = true, 4096
	eachPath(t, func(t *testing.T, kind BackendType) {
		const size = 16 << 20
		a, b, s := pair(t, size, kind, cfg)
		fill(a.mem, 11)
		var all []*Status
		for i := range uint64(8) { // 4096 ops in all, some of them small enough to end inline
			n := uint64(size / 8)
			all = append(all, s.Write([]uint64{i * n}, []uint64{i * n}, []uint64{n}, i), s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 100+i))
		}
		for _, st := range all {
			succeed(t, st)
		}
		if !bytes.Equal(a.mem, b.mem) {
			t.Error("bytes differ")
		}
	})
}

func TestAnEngineReachesItself(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		e := newSide(t, "me", 4096, kind, nil)
		other, addr := buffer(t, 4096)
		d, err := e.RegisterMemory(addr, 4096, -1, LocCPU)
		if err != nil {
			t.Fatal(err)
		}
		fill(e.mem, 6)
		s, err := e.CreateSession(e.desc, d)
		if err != nil || s == nil {
			t.Fatal(s, err)
		}
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 0))
		if !bytes.Equal(e.mem, other) {
			t.Error("bytes differ")
		}
	})
}

// betweenHosts returns the transport that RDMA backends use to other hosts. It is a device's if the
// tests have one.
func betweenHosts() string {
	if f, err := core.Transports("RDMA"); err == nil && len(f.Missing) == 0 {
		return "verbs"
	}
	return "tcp"
}

func TestPathsAndReasons(t *testing.T) {
	_, _, s := pair(t, 8, BackendRDMA, nil)
	d := s.Describe()
	if !strings.HasPrefix(d.Path, "shm/") || len(d.Reasons) == 0 {
		t.Errorf("on one host: %+v", d)
	}
	far := newSide(t, "far", 8, BackendRDMA, nil)
	config.SetLookup(func(name string) (string, bool) { return "another-host", name == config.NodeID })
	near := newSide(t, "near", 8, BackendRDMA, nil)
	config.SetLookup(nil)
	if err := near.RegisterRemoteEngine(far.Desc()); err != nil {
		t.Fatal(err)
	}
	s, err := near.CreateSession(near.desc, far.desc)
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Describe(); !strings.HasPrefix(d.Path, betweenHosts()) || !strings.Contains(strings.Join(d.Reasons, "; "), "another host") {
		t.Errorf("between hosts: %+v", d)
	}
}

func TestNotificationsOff(t *testing.T) {
	cfg := DefaultBackendConfig()
	cfg.EnableNotification = false
	_, b, s := pair(t, 64, BackendRDMA, cfg)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 3))
	time.Sleep(2 * clockPeriod)
	if b.PopInbound("a", 3) {
		t.Error("an arrival with notifications off")
	}
}

// begin submits a write of n entries, which gets its place in the order, but sends nothing.
func (s *Session) begin(t *testing.T, n int, size uint64) *transfer.Transfer {
	t.Helper()
	e := batch.Entries{Local: make([]uint64, n), Remote: make([]uint64, n), Sizes: make([]uint64, n)}
	for i := range e.Sizes {
		e.Sizes[i] = size
	}
	b := batch.New()
	total, err := b.Accept(&e, s.pair.Local.Desc().Size, s.remote.Size)
	if err != nil || !s.pair.Local.Enter() {
		t.Fatal(err)
	}
	p := s.plan.Load()
	b.Build(fabric.OpWrite, &p.to, total, &e)
	return s.pair.Submit(p.path.Ledger(), &transfer.Params{Kind: fabric.OpWrite, UID: 77, Start: time.Now(), Limit: s.limit,
		Entries: n, Total: total, Batch: b, To: &p.to})
}

func TestDeadlineEndsAStalledTransfer(t *testing.T) {
	cfg := DefaultBackendConfig()
	cfg.DeadlineMS = 200
	_, _, s := pair(t, 64, BackendTCP, cfg)
	p := s.plan.Load().path
	stuck := s.begin(t, 1, 64)
	st := stuck.Status
	if !p.Ledger().Enter(stuck) { // one op, which never ends
		t.Fatal(st.Message())
	}
	behind := s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 78)
	time.Sleep(400 * time.Millisecond)
	if stuck.Failure() == nil || p.Err() == nil {
		t.Fatalf("not expired: transfer %v, path %v", stuck.Failure(), p.Err())
	}
	if !stuck.OpsEnded(2) { // once for the provider when the path closes, and once for the submitter
		t.Fatal("more ops than one")
	}
	p.Ledger().Leave(stuck)
	stuck.End()
	if c := st.Wait(deadline(t)); c != CodeErrRDMAOp || !strings.Contains(st.Message(), `"b"`) || !strings.Contains(st.Message(), "deadline of 200 ms") {
		t.Errorf("%v %q", c, st.Message())
	}
	if c := behind.Wait(deadline(t)); c != CodeSuccess {
		t.Errorf("the finished transfer behind it: %v %q", c, behind.Message())
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 79))
}

func TestCloseWithTransfersInFlight(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		a, _, s := pair(t, 64<<20, kind, nil)
		var all []*Status
		for i := range uint64(8) {
			all = append(all, s.Write([]uint64{0}, []uint64{0}, []uint64{64 << 20}, i))
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		for i, st := range all {
			if st.Code() == CodeInProgress {
				t.Errorf("transfer %d is in progress after Close", i)
			}
		}
		if st := s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 9); !st.Code().Failed() || s.Alive() {
			t.Errorf("after Close: %v", st.Code())
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	for _, kind := range []BackendType{BackendRDMA, BackendTCP} {
		for _, n := range []uint64{8, 1 << 20} {
			b.Run(fmt.Sprintf("%v/%d", kind, n), func(b *testing.B) {
				a, _, s := pair(b, 1<<20, kind, nil)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				lo, sz := []uint64{0}, []uint64{n}
				for b.Loop() {
					if s.Write(lo, lo, sz, a.AllocateTransferUID()).Wait(context.Background()) != CodeSuccess {
						b.Fatal("failed")
					}
				}
			})
		}
	}
}

func TestAnEngineWithALongKeyIsRefused(t *testing.T) {
	if _, err := NewEngine(strings.Repeat("k", MaxKey+1), EngineConfig{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v, want %v", err, ErrInvalid)
	}
}
