// SPDX-License-Identifier: MIT

package util

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
)

const deadline = 20 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func newCQ(t testing.TB, size int) *CQ {
	q, err := NewCQ(size)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func readOne(t *testing.T, cq *CQ) fabric.Completion {
	t.Helper()
	var c [1]fabric.Completion
	if _, err := cq.Read(c[:]); err != nil {
		t.Fatal(err)
	}
	return c[0]
}

func push(t *testing.T, q *CQ, ctxs ...uint64) {
	t.Helper()
	for _, c := range ctxs {
		if err := q.Reserve(1); err != nil {
			t.Fatal(err)
		}
		q.Push(fabric.Completion{Ctx: c})
	}
}

func TestCQSizes(t *testing.T) {
	for _, size := range []int{-1, 0, 1<<24 + 1} {
		if _, err := NewCQ(size); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	for _, size := range []int{1, 2, 3, 1023, 1024} {
		q := newCQ(t, size)
		for lap := range 3 {
			for i := range size {
				push(t, q, uint64(lap*size+i))
			}
			if err := q.Reserve(1); err != fabric.ErrAgain {
				t.Fatalf("size %d: place %d: %v", size, size+1, err)
			}
			dst := make([]fabric.Completion, size+1)
			n, err := q.Read(dst)
			if n != size || err != nil || dst[0].Ctx != uint64(lap*size) || dst[size-1].Ctx != uint64(lap*size+size-1) {
				t.Fatalf("size %d, lap %d: read %d, %v, %v", size, lap, n, err, dst)
			}
			if _, err := q.Read(dst); err != fabric.ErrAgain {
				t.Fatalf("empty: %v", err)
			}
		}
	}
}

func TestCQReserve(t *testing.T) {
	q := newCQ(t, 4)
	if err := q.Reserve(5); err != fabric.ErrAgain {
		t.Fatalf("5 of 4: %v", err)
	}
	if err := q.Reserve(4); err != nil {
		t.Fatal(err)
	}
	q.Unreserve(1)
	q.Push(fabric.Completion{})
	q.PushErr(fabric.ErrEntry{})
	if err := q.Reserve(2); err != fabric.ErrAgain {
		t.Fatalf("2 with 1 left: %v", err)
	}
	if _, err := q.Read(make([]fabric.Completion, 4)); err != nil {
		t.Fatal(err)
	}
	if err := q.ReadErr(&fabric.ErrEntry{}); err != nil {
		t.Fatal(err)
	}
	if err := q.Reserve(3); err != nil {
		t.Fatalf("read places are not free: %v", err)
	}
}

func TestCQErrorsStandInLine(t *testing.T) {
	q := newCQ(t, 8)
	push(t, q, 1, 2)
	if err := q.Reserve(2); err != nil {
		t.Fatal(err)
	}
	q.PushErr(fabric.ErrEntry{Completion: fabric.Completion{Ctx: 3}, Err: fabric.ErrRange, Detail: "first"})
	push(t, q, 4)
	q.PushErr(fabric.ErrEntry{Completion: fabric.Completion{Ctx: 5}, Err: fabric.ErrAccess})

	var e fabric.ErrEntry
	if err := q.ReadErr(&e); err != fabric.ErrAgain {
		t.Fatalf("error before the successes that came before it: %v", err)
	}
	dst := make([]fabric.Completion, 8)
	if n, err := q.Read(dst); n != 2 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	for range 2 {
		if n, err := q.Read(dst); n != 0 || err != fabric.ErrAvail {
			t.Fatalf("got %d, %v", n, err)
		}
	}
	if n, err := q.Wait(testContext(t), dst); n != 0 || err != fabric.ErrAvail {
		t.Fatalf("wait: got %d, %v", n, err)
	}
	if err := q.ReadErr(&e); err != nil || e.Ctx != 3 || e.Detail != "first" || !errors.Is(&e, fabric.ErrRange) {
		t.Fatalf("got %+v, %v", e, err)
	}
	if n, err := q.Read(dst); n != 1 || err != nil || dst[0].Ctx != 4 {
		t.Fatalf("got %d, %v", n, err)
	}
	if err := q.ReadErr(&e); err != nil || e.Ctx != 5 || e.Detail != "" {
		t.Fatalf("got %+v, %v", e, err)
	}
	if err := q.ReadErr(&e); err != fabric.ErrAgain {
		t.Fatalf("got %v", err)
	}
}

func TestCQOverrunByProvider(t *testing.T) {
	q := newCQ(t, 1)
	for range 3 {
		q.Push(fabric.Completion{})
	}
	if _, err := q.Read(make([]fabric.Completion, 1)); err != fabric.ErrOverrun {
		t.Fatalf("got %v", err)
	}
}

func TestCQTryPush(t *testing.T) {
	q := newCQ(t, 2)
	var calls atomic.Int32
	remove := q.OnSpace(func() {
		calls.Add(1)
		q.TryPush(fabric.Completion{Ctx: 99}) // hooks run without locks
	})
	if err := q.Reserve(2); err != nil {
		t.Fatal(err)
	}
	if !q.TryPush(fabric.Completion{Ctx: 1}) || !q.TryPush(fabric.Completion{Ctx: 2}) {
		t.Fatal("outstanding ops took the places of passive completions")
	}
	if q.TryPush(fabric.Completion{Ctx: 3}) {
		t.Fatal("no bound")
	}
	q.Push(fabric.Completion{Ctx: 4})
	dst := make([]fabric.Completion, 1)
	if n, err := q.Read(dst); n != 1 || err != nil || dst[0].Ctx != 1 || calls.Load() != 1 {
		t.Fatalf("got %v, %d, %v, called %d times", dst, n, err, calls.Load())
	}
	remove()
	if q.TryPush(fabric.Completion{}) {
		t.Fatal("the hook's completion has the place")
	}
	for n, err := 0, error(nil); err == nil; n, err = q.Read(dst) {
		_ = n
	}
	if calls.Load() != 1 {
		t.Fatal("called after remove")
	}
	if err := q.Reserve(2); err != fabric.ErrAgain {
		t.Fatalf("passive completions gave an own place back: %v", err)
	}
	if err := q.Reserve(1); err != nil {
		t.Fatalf("a read completion gave no place back: %v", err)
	}
}

func TestCQClose(t *testing.T) {
	q := newCQ(t, 2)
	if err := errors.Join(q.Bind(), q.Bind()); err != nil {
		t.Fatal(err)
	}
	q.Unbind()
	if err := q.Close(); !errors.Is(err, fabric.ErrBusy) {
		t.Fatalf("bound: %v", err)
	}
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := q.Wait(testContext(t), make([]fabric.Completion, 1))
			done <- err
		}()
	}
	q.Unbind()
	for range 2 {
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-done; err != fabric.ErrClosed {
			t.Fatalf("parked reader: %v", err)
		}
	}
	q.Push(fabric.Completion{})
	q.PushErr(fabric.ErrEntry{})
	if !q.TryPush(fabric.Completion{}) {
		t.Error("a closed queue holds a peer up")
	}
	_, errRead := q.Read(make([]fabric.Completion, 1))
	for _, err := range []error{errRead, q.ReadErr(&fabric.ErrEntry{}), q.Signal(), q.Reserve(1), errors.Unwrap(q.Bind())} {
		if err != fabric.ErrClosed {
			t.Errorf("got %v", err)
		}
	}
}

func TestCQWait(t *testing.T) {
	q := newCQ(t, 8)
	dst := make([]fabric.Completion, 1)
	ctx, cancel := context.WithCancel(testContext(t))
	time.AfterFunc(5*time.Millisecond, cancel)
	if _, err := q.Wait(ctx, dst); err != context.Canceled {
		t.Fatalf("canceled: %v", err)
	}
	for range 3 {
		if err := q.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := q.Wait(testContext(t), dst); n != 0 || err != nil {
		t.Fatalf("signalled before: %d, %v", n, err)
	}
	short, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
	defer cancel()
	if _, err := q.Wait(short, dst); err != context.DeadlineExceeded {
		t.Fatalf("signals pile up: %v", err)
	}
	push(t, q, 7)
	if n, err := q.Wait(testContext(t), dst); n != 1 || err != nil || dst[0].Ctx != 7 {
		t.Fatalf("got %d, %v", n, err)
	}
}

// TestCQSignalWakesOneEach parks n readers and signals n times.
func TestCQSignalWakesOneEach(t *testing.T) {
	q := newCQ(t, 8)
	const readers = 4
	var wg sync.WaitGroup
	for range readers {
		start(&wg, func() {
			if n, err := q.Wait(testContext(t), make([]fabric.Completion, 1)); n != 0 || err != nil {
				t.Errorf("got %d, %v", n, err)
			}
		})
	}
	for parked := 0; parked < readers; time.Sleep(time.Millisecond) {
		q.mu.Lock()
		parked = q.parked
		q.mu.Unlock()
	}
	for range readers {
		if err := q.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// TestCQEachOnce has several producers and several parked readers with small buffers.
func TestCQEachOnce(t *testing.T) {
	const producers, readers, each = 4, 3, 2000
	q := newCQ(t, 16)
	ctx := testContext(t)
	var seen [producers * each]atomic.Int32
	var left atomic.Int64
	left.Store(producers * each)
	run, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for range readers {
		start(&wg, func() {
			dst := make([]fabric.Completion, 2)
			for {
				n, err := q.Wait(run, dst)
				switch {
				case err == fabric.ErrAvail:
					var e fabric.ErrEntry
					if q.ReadErr(&e) == nil {
						dst[0], n = e.Completion, 1
					}
				case err != nil:
					return
				}
				for _, c := range dst[:n] {
					seen[c.Ctx].Add(1)
					if left.Add(-1) == 0 {
						stop()
					}
				}
			}
		})
	}
	for p := range producers {
		start(&wg, func() {
			for i := range each {
				for q.Reserve(1) != nil && ctx.Err() == nil {
					time.Sleep(10 * time.Microsecond)
				}
				c := fabric.Completion{Ctx: uint64(p*each + i)}
				if i%7 == 0 {
					q.PushErr(fabric.ErrEntry{Completion: c})
				} else {
					q.Push(c)
				}
			}
		})
	}
	wg.Wait()
	for i := range seen {
		if n := seen[i].Load(); n != 1 {
			t.Fatalf("entry %d was read %d times", i, n)
		}
	}
}

func TestCQDoesNotAllocate(t *testing.T) {
	q := newCQ(t, 64)
	dst := make([]fabric.Completion, 64)
	ctx := testContext(t)
	if n := testing.AllocsPerRun(1000, func() {
		_ = q.Reserve(8)
		for range 8 {
			q.Push(fabric.Completion{})
		}
		_, _ = q.Read(dst)
		_, _ = q.Read(dst)
		q.TryPush(fabric.Completion{})
		_, _ = q.Wait(ctx, dst)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCQ(b *testing.B) {
	q := newCQ(b, 64)
	dst := make([]fabric.Completion, 64)
	for b.Loop() {
		_ = q.Reserve(1)
		q.Push(fabric.Completion{})
		_, _ = q.Read(dst)
	}
}

// Start runs fn as part of wg.
func start(wg *sync.WaitGroup, fn func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		fn()
	}()
}
