// SPDX-License-Identifier: MIT

package util

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
)

// A box is a Source with a counter for a peer's ring.
type box struct {
	q     *CQ
	mu    sync.Mutex
	items []uint64
	arms  atomic.Int32
}

func (b *box) Drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.items) > 0 && b.q.TryPush(fabric.Completion{Ctx: b.items[0]}) {
		b.items = b.items[1:]
	}
}

func (b *box) Arm(parking bool) {
	if parking {
		b.arms.Add(1)
	} else {
		b.arms.Add(-1)
	}
}

func (b *box) put(v uint64) {
	b.mu.Lock()
	b.items = append(b.items, v)
	b.mu.Unlock()
	if b.arms.Load() > 0 {
		b.q.Wake()
	}
}

func TestCQSource(t *testing.T) {
	q := newCQ(t, 4)
	b := &box{q: q}
	ctx := testContext(t)
	got := make(chan uint64)
	go func() {
		dst := make([]fabric.Completion, 1)
		for {
			if _, err := q.Wait(ctx, dst); err != nil {
				close(got)
				return
			}
			got <- dst[0].Ctx
		}
	}()
	time.Sleep(time.Millisecond)
	q.AddSource(b) // while somebody is parked
	for i := range uint64(1000) {
		b.put(i)
		if v := <-got; v != i {
			t.Fatalf("got %d, want %d", v, i)
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if _, more := <-got; more || b.arms.Load() != 0 {
		t.Fatalf("%d readers are still armed", b.arms.Load())
	}
}

func TestCQReadLooksIntoSources(t *testing.T) {
	q := newCQ(t, 2)
	b := &box{q: q, items: []uint64{1, 2, 3}}
	q.AddSource(b)
	dst := make([]fabric.Completion, 8)
	if n, err := q.Read(dst); n != 2 || err != nil {
		t.Fatalf("got %d, %v: want as many as there are places", n, err)
	}
	q.RemoveSource(b)
	if n, err := q.Read(dst); n != 0 || err != fabric.ErrAgain {
		t.Fatalf("removed: got %d, %v", n, err)
	}
}

func TestTryWaitArmsSources(t *testing.T) {
	q := newCQ(t, 4)
	fd, err := q.FD()
	if err != nil {
		t.Fatal(err)
	}
	a, b := &box{q: q}, &box{q: q}
	armed := func(step string, wantA, wantB int32) {
		t.Helper()
		if a.arms.Load() != wantA || b.arms.Load() != wantB {
			t.Fatalf("%s: armed %d and %d times, want %d and %d", step, a.arms.Load(), b.arms.Load(), wantA, wantB)
		}
	}
	wait := func(want error) {
		t.Helper()
		if err := q.TryWait(); err != want {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	q.AddSource(a)
	wait(nil)
	wait(nil)
	armed("two calls", 1, 0)
	a.put(1)
	if !pollFor(t, fd, deadline) {
		t.Fatal("an arrival in a source does not make the descriptor readable")
	}
	wait(fabric.ErrAgain)
	armed("something there", 0, 0)
	if n, err := q.Read(make([]fabric.Completion, 4)); n != 1 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	wait(nil)
	q.AddSource(b)
	if !pollFor(t, fd, deadline) {
		t.Fatal("no reader was woken to arm the new source")
	}
	wait(nil)
	armed("a second source", 1, 1)
	q.RemoveSource(a)
	wait(nil)
	armed("one source less", 0, 1)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	armed("closed", 0, 0)
	wait(fabric.ErrClosed)
}

func TestSourcesMissNothing(t *testing.T) {
	const total = 20000
	q := newCQ(t, 16)
	fd, err := q.FD()
	if err != nil {
		t.Fatal(err)
	}
	b := &box{q: q}
	var wg sync.WaitGroup
	var asleep atomic.Bool
	ctx := testContext(t)
	start(&wg, func() {
		for i := range uint64(total) {
			for i%256 == 0 && !asleep.Load() && ctx.Err() == nil {
				runtime.Gosched()
			}
			b.put(i)
			if i == 100 {
				q.AddSource(b)
			}
		}
	})
	dst := make([]fabric.Completion, 5)
	for got := 0; got < total; {
		for q.TryWait() == fabric.ErrAgain {
			for n, _ := q.Read(dst); n > 0; n, _ = q.Read(dst) {
				if dst[0].Ctx != uint64(got) {
					t.Fatalf("entry %d is number %d", got, dst[0].Ctx)
				}
				got += n
			}
		}
		asleep.Store(true)
		if got < total && !pollFor(t, fd, deadline/2) {
			t.Fatalf("%d of %d came, and no wake-up", got, total)
		}
		asleep.Store(false)
	}
	wg.Wait()
}
