// SPDX-License-Identifier: MIT

package util

import (
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
