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
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/mem"
	"mori/io/internal/peer"
)

// A wire is an in-memory network that acts as the provider named name, and breaks on request.
type wire struct {
	*mem.Provider
	name string

	mu    sync.Mutex
	fault func(op *fabric.Op) error // nil: none
	down  atomic.Bool               // rejects all connections
	moved atomic.Int64              // ops that reached the wire
}

func newWire(name string) *wire {
	w := &wire{name: name}
	w.Provider = mem.New(mem.Options{Fault: func(op *fabric.Op) error {
		w.moved.Add(1)
		w.mu.Lock()
		f := w.fault
		w.mu.Unlock()
		if f == nil {
			return nil
		}
		return f(op)
	}})
	return w
}

func (w *wire) breakWith(f func(op *fabric.Op) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

func (w *wire) Name() string { return w.name }

func (w *wire) GetInfo(ctx context.Context, _, _ string, hints *fabric.Info) ([]*fabric.Info, error) {
	below := hints.Clone()
	below.Provider = ""
	infos, err := w.Provider.GetInfo(ctx, "", "", below)
	for _, in := range infos {
		in.Provider = w.name
		in.Limits.BestOp = 64 << 10
	}
	return infos, err
}

func (w *wire) Open(ctx context.Context, in *fabric.Info) (fabric.Fabric, error) {
	below := in.Clone()
	below.Provider = ""
	f, err := w.Provider.Open(ctx, below)
	return wireFabric{f, w}, err
}

type wireFabric struct {
	fabric.Fabric
	w *wire
}

func (f wireFabric) Listen(ctx context.Context, _ *fabric.Info) (fabric.Listener, error) {
	l, err := f.Fabric.Listen(ctx, &fabric.Info{})
	return wireListener{l, f.w}, err
}

// A wireListener rejects connections while the wire is down.
type wireListener struct {
	fabric.Listener
	w *wire
}

func (l wireListener) Accept(ctx context.Context) (fabric.ConnReq, error) {
	for {
		req, err := l.Listener.Accept(ctx)
		if err != nil || !l.w.down.Load() {
			return req, err
		}
		if err := req.Reject([]byte("down")); err != nil {
			return nil, err
		}
	}
}

// A wired pair has two engines with the wires "shm" and "tcp" between them. "shm" is preferred.
type wired struct {
	a, b     *side
	s        *Session
	shm, tcp *wire
}

func newWired(t *testing.T, size int, cfg *BackendConfig, shape ...func(*Engine)) *wired {
	t.Helper()
	p := &wired{shm: newWire("shm"), tcp: newWire("tcp")}
	reg := fabric.NewRegistry()
	if err := errors.Join(reg.Register(p.shm), reg.Register(p.tcp)); err != nil {
		t.Fatal(err)
	}
	side := func(key string) *side {
		e, err := newEngine(key, EngineConfig{}, reg)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range shape {
			f(e)
		}
		return newSideOf(t, e, size, BackendRDMA, cfg)
	}
	p.a, p.b = side("a"), side("b")
	p.s = meet(t, p.a, p.b)
	return p
}

// errCut is the error of ops on a cut wire.
var errCut = errors.New("the wire was cut")

// cutAfter cuts the wire once, after n more ops.
func (w *wire) cutAfter(n int64) {
	var left atomic.Int64
	left.Store(n)
	w.breakWith(func(*fabric.Op) error {
		if left.Add(-1) == -1 {
			return errCut
		}
		return nil
	})
}

func TestABrokenPathIsReplayedOnTheNext(t *testing.T) {
	const size = 4 << 20
	for _, write := range []bool{true, false} {
		for _, at := range []int64{0, 1, 17, 63} {
			t.Run(fmt.Sprintf("write %v, cut before op %d", write, at), func(t *testing.T) {
				w := newWired(t, size, nil)
				from, to, move := w.a.mem, w.b.mem, w.s.Write
				if !write {
					from, to, move = w.b.mem, w.a.mem, w.s.Read
				}
				fill(from, 5)
				w.shm.cutAfter(at)
				uid := w.a.AllocateTransferUID()
				succeed(t, move([]uint64{0}, []uint64{0}, []uint64{size}, uid))
				if !bytes.Equal(from, to) {
					t.Fatal("bytes differ after a replay")
				}
				arrived(t, w.b.Engine, "a", uid)
				if d := w.a.Describe(); d.Counters.Replays == 0 || w.s.Describe().Path != "tcp/memmove" {
					t.Errorf("%d replays, path %s", d.Counters.Replays, w.s.Describe().Path)
				}
				if n := w.tcp.moved.Load(); n > 64-at+1 {
					t.Errorf("%d ops were replayed, only %d were left", n, 64-at)
				}
			})
		}
	}
}

// TestRandomCuts moves blocks between random places while both wires are cut repeatedly, and
// compares memory with a model.
func TestRandomCuts(t *testing.T) {
	const size, block = 1 << 20, 4096
	w := newWired(t, size, nil)
	fill(w.a.mem, 1)
	rng := rand.New(rand.NewPCG(2, 3))
	model := make([]byte, size)
	for round := range 60 {
		w.shm.cutAfter(rng.Int64N(40))
		w.tcp.cutAfter(rng.Int64N(40))
		lo, ro, sz := make([]uint64, 64), make([]uint64, 64), make([]uint64, 64)
		for i, k := range rng.Perm(size / block)[:64] {
			lo[i], ro[i], sz[i] = rng.Uint64N(size/block)*block, uint64(k)*block, block
			copy(model[ro[i]:ro[i]+block], w.a.mem[lo[i]:])
		}
		uid := w.a.AllocateTransferUID()
		succeed(t, w.s.Write(lo, ro, sz, uid))
		if !bytes.Equal(model, w.b.mem) {
			t.Fatalf("round %d: the bytes differ", round)
		}
		arrived(t, w.b.Engine, "a", uid)
	}
	if n := w.a.Describe().Counters.Replays; n == 0 {
		t.Error("nothing was replayed: no cut hit")
	}
}

func TestABetterPathIsTakenBack(t *testing.T) {
	w := newWired(t, 4096, nil)
	w.shm.cutAfter(0)
	w.shm.down.Store(true)
	succeed(t, w.s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 1))
	if got := w.s.Describe().Path; got != "tcp/memmove" {
		t.Fatalf("path %s after shm broke", got)
	}
	w.shm.down.Store(false)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		succeed(t, w.s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 2))
		if w.s.Describe().Path == "shm/memmove" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("shm works again and is not taken back")
		}
	}
	for end := time.Now().Add(10 * time.Second); len(w.a.peers.Get("b").Paths()) > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the path that was replaced is still open")
		}
	}
}

func TestARefusedOpIsNotReplayed(t *testing.T) {
	w := newWired(t, 4096, nil)
	if err := w.b.DeregisterMemory(w.b.desc); err != nil {
		t.Fatal(err)
	}
	st := w.s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 1)
	if c := st.Wait(deadline(t)); c != CodeErrNotFound {
		t.Errorf("%v %q", c, st.Message())
	}
	if n := w.a.Describe().Counters.Replays; n != 0 || w.s.Describe().Path != "shm/memmove" {
		t.Errorf("%d replays, path %s", n, w.s.Describe().Path)
	}
}

// TestNeighboursOfAStalledTransferGoOn checks that transfers behind one that stalls until its
// deadline succeed.
func TestNeighboursOfAStalledTransferGoOn(t *testing.T) {
	cfg := DefaultBackendConfig()
	cfg.DeadlineMS = 300
	w := newWired(t, 1<<20, cfg)
	slow := w.s.WithDeadline(w.s.limit)
	stalled, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	w.shm.breakWith(func(op *fabric.Op) error {
		if op.Len() == 11 {
			close(stalled)
			<-release
		}
		return nil
	})
	first := slow.Write([]uint64{0}, []uint64{0}, []uint64{11}, 1)
	<-stalled
	w.s.limit = 0
	second := w.s.Write([]uint64{0}, []uint64{0}, []uint64{1 << 20}, 2)
	go func() {
		// The mem provider keeps an op until the fault function returns; a real connection would be
		// cut.
		for first.Code() == CodeInProgress && w.s.plan.Load().path.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		release <- struct{}{}
	}()
	if c := first.Wait(deadline(t)); c != CodeErrRDMAOp || !strings.Contains(first.Message(), "deadline of 300 ms") {
		t.Errorf("%v %q", c, first.Message())
	}
	succeed(t, second)
	if !bytes.Equal(w.a.mem, w.b.mem) {
		t.Error("the neighbour's bytes differ")
	}
}

func TestAPeerThatIsGoneEndsParkedTransfers(t *testing.T) {
	w := newWired(t, 1<<20, nil)
	w.shm.down.Store(true)
	w.tcp.down.Store(true)
	w.shm.cutAfter(3)
	st := w.s.Write([]uint64{0}, []uint64{0}, []uint64{1 << 20}, 1)
	for end := time.Now().Add(10 * time.Second); !strings.Contains(w.parkedReport(), "waiting for a path"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not parked: %v %q", st.Code(), w.parkedReport())
		}
	}
	if err := w.b.Close(); err != nil {
		t.Fatal(err)
	}
	if c := st.Wait(deadline(t)); !c.Failed() || !strings.Contains(st.Message(), `"b"`) {
		t.Errorf("%v %q", c, st.Message())
	}
}

// parkedReport returns the stage of a parked transfer of a, "" if none is parked.
func (w *wired) parkedReport() string {
	p := w.a.peers.Get("b").Pending
	if _, stages := p.Open(time.Now(), 1); len(stages) > 0 && p.Parked.Len() > 0 {
		return stages[0]
	}
	return ""
}

func TestAPathThatNobodyUsesCloses(t *testing.T) {
	w := newWired(t, 64, nil, func(e *Engine) { e.shared.Idle = 30 * time.Millisecond })
	succeed(t, w.s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1))
	for end := time.Now().Add(10 * time.Second); w.s.Ready(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still open")
		}
	}
	succeed(t, w.s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 2))
	if d := w.a.Describe(); d.Counters.Replays != 0 || d.Counters.Failed != 0 {
		t.Errorf("%+v", d.Counters)
	}
}

// TestReplaysAreBounded checks that transfers on paths that always break are replayed a bounded
// number of times, with back-off.
func TestReplaysAreBounded(t *testing.T) {
	w := newWired(t, 1<<16, nil, quick)
	var ops atomic.Int64
	broken := func(*fabric.Op) error {
		ops.Add(1)
		return fabric.ErrConnReset
	}
	w.shm.breakWith(broken)
	w.tcp.breakWith(broken)
	st := w.s.WithDeadline(0).Write([]uint64{0}, []uint64{0}, []uint64{64}, 1)
	if code := st.Wait(deadline(t)); code != CodeErrRDMAOp || !strings.Contains(st.Message(), "stopped after 20 replays") {
		t.Fatalf("%v %s", code, st.Message())
	}
	if n := ops.Load(); n > 2*peer.MaxReplays+2 {
		t.Errorf("%d ops were tried", n)
	}
}
