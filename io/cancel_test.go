// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
)

func TestCancelEndsATransferAndNoOther(t *testing.T) {
	w := newWired(t, 1<<20, nil)
	fill(w.a.mem, 1)
	stalled, release := make(chan struct{}), make(chan struct{})
	w.shm.breakWith(func(op *fabric.Op) error {
		if op.Len() == 11 {
			close(stalled)
			<-release
		}
		return nil
	})
	first := w.s.Write([]uint64{0}, []uint64{0}, []uint64{11}, 1)
	<-stalled
	second := w.s.Write([]uint64{100}, []uint64{100}, []uint64{1000}, 2)
	done := make(chan error, 1)
	go func() { done <- first.Cancel(deadline(t)) }()
	for p := w.s.plan.Load().path; p.Err() == nil; time.Sleep(time.Millisecond) {
	}
	close(release) // the mem provider keeps an op until the fault function returns
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if first.Code() != CodeErrBadState || !strings.Contains(first.Message(), "canceled") {
		t.Errorf("%v %q", first.Code(), first.Message())
	}
	succeed(t, second)
	if !bytes.Equal(w.b.mem[100:1100], w.a.mem[100:1100]) {
		t.Error("the neighbour's bytes differ")
	}
	if w.b.PopInbound("a", 1) {
		t.Error("the peer was told of a transfer that was canceled")
	}
	for _, st := range []*Status{first, second, NewStatus()} {
		code := st.Code()
		if err := st.Cancel(deadline(t)); err != nil || st.Code() != code {
			t.Errorf("cancel after the end: %v, %v", err, st.Code())
		}
	}
}

// TestACancelStorm cancels transfers at random moments, on both kinds of paths. After a cancel the
// transfer must not touch memory on either side: the test overwrites the pages at once and checks
// that they keep the new bytes.
func TestACancelStorm(t *testing.T) {
	eachPath(t, func(t *testing.T, kind BackendType) {
		const slot, slots = 256 << 10, 16
		a, b, s := pair(t, slot*slots, kind, nil)
		var wg sync.WaitGroup
		for k := range uint64(slots) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				rng := rand.New(rand.NewPCG(k, 7))
				mine, theirs := a.mem[k*slot:(k+1)*slot], b.mem[k*slot:(k+1)*slot]
				for round := range uint64(12) {
					move, at := s.Write, theirs
					if round%2 == 1 {
						move, at = s.Read, mine
					}
					st := move([]uint64{k * slot}, []uint64{k * slot}, []uint64{slot}, k<<32|round)
					time.Sleep(time.Duration(rng.IntN(400)) * time.Microsecond)
					if err := st.Cancel(deadline(t)); err != nil {
						t.Errorf("cancel: %v", err)
						return
					}
					c := st.Code()
					for i := range at {
						at[i] = byte(round + 1)
					}
					if c == CodeInProgress { // all bytes moved; the success waits for an earlier transfer
						c = st.Wait(deadline(t))
					}
					time.Sleep(time.Millisecond)
					if at[0] != byte(round+1) || at[slot-1] != byte(round+1) || bytes.Count(at, []byte{byte(round + 1)}) != slot {
						t.Errorf("slot %d round %d: bytes landed after cancel (%v)", k, round, c)
						return
					}
				}
			}()
		}
		wg.Wait()
		fill(a.mem, 3)
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{slot * slots}, 1))
		if !bytes.Equal(a.mem, b.mem) {
			t.Error("after the storm the bytes differ")
		}
	})
}

func TestCancelByUID(t *testing.T) {
	w := newWired(t, 4096, nil)
	w.shm.down.Store(true)
	w.tcp.down.Store(true)
	w.shm.cutAfter(0)
	st := w.s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 42)
	if err := w.s.Cancel(deadline(t), 41); err != nil || st.Code() != CodeInProgress {
		t.Fatalf("another uid: %v, %v", err, st.Code())
	}
	if err := w.s.Cancel(deadline(t), 42); err != nil {
		t.Fatal(err)
	}
	if st.Code() != CodeErrBadState || w.b.PopInbound("a", 42) {
		t.Errorf("%v %q", st.Code(), st.Message())
	}
}

func TestCancelSaysWhenThePeerDoesNotConfirm(t *testing.T) {
	w := newWired(t, 1<<20, nil)
	w.shm.down.Store(true)
	w.tcp.down.Store(true)
	w.shm.cutAfter(3)
	st := w.s.Write([]uint64{0}, []uint64{0}, []uint64{1 << 20}, 1)
	w.b.backends.Control().Close()
	ctx, cancel := context.WithTimeout(deadline(t), 5*time.Second)
	defer cancel()
	err := st.Cancel(ctx)
	if c := st.Wait(deadline(t)); !c.Failed() {
		t.Fatalf("%v", c)
	}
	if err == nil && strings.Contains(st.Message(), "canceled") || err != nil && !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, %q", err, st.Message())
	}
}

func TestASessionWithItsOwnDeadline(t *testing.T) {
	w := newWired(t, 64, nil)
	w.shm.down.Store(true)
	w.tcp.down.Store(true)
	w.shm.cutAfter(0)
	st := w.s.WithDeadline(150*time.Millisecond).Write([]uint64{0}, []uint64{0}, []uint64{64}, 1)
	if c := st.Wait(deadline(t)); c != CodeErrRDMAOp || !strings.Contains(st.Message(), "deadline of 150 ms") || !strings.Contains(st.Message(), "waiting for a path") {
		t.Errorf("%v %q", c, st.Message())
	}
}
