// SPDX-License-Identifier: MIT

package util

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
)

// pollFor sleeps in poll(2) until fd is readable and reports whether it is.
func pollFor(t *testing.T, fd int, d time.Duration) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, int(d.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 1 && p[0].Revents != unix.POLLIN {
			t.Fatalf("poll: %v, events %#x", err, p[0].Revents)
		}
		return n == 1
	}
}

// A polled is a wait object with one thing that can happen to it, and how that is taken away.
type polled struct {
	fabric.WaitObject
	happen func()
	take   func() int // how many there were
	close  func() error
}

func polledObjects(t *testing.T) map[string]polled {
	cq, c := newCQ(t, 1<<12), newCounter(t, fabric.CountOps)
	eq, err := NewEQ(4)
	if err != nil {
		t.Fatal(err)
	}
	var dst [3]fabric.Completion
	takeCQ := func() int {
		n, _ := cq.Read(dst[:])
		var e fabric.ErrEntry
		for cq.ReadErr(&e) == nil {
			n++
		}
		return n
	}
	reserve := func() {
		for cq.Reserve(1) != nil {
			runtime.Gosched()
		}
	}
	var seen, failed uint64
	return map[string]polled{
		"completions": {cq, func() {
			for !cq.TryPush(fabric.Completion{}) {
				runtime.Gosched()
			}
		}, takeCQ, cq.Close},
		"own completions": {cq, func() {
			reserve()
			cq.Push(fabric.Completion{})
		}, takeCQ, cq.Close},
		"failures": {cq, func() {
			reserve()
			cq.PushErr(fabric.ErrEntry{})
		}, takeCQ, cq.Close},
		"events": {eq, func() { eq.Push(fabric.Event{}) }, func() int {
			if _, err := eq.Read(); err != nil {
				return 0
			}
			return 1
		}, eq.Close},
		"a count": {c, func() { c.Count(1) }, func() int {
			was := seen
			seen = c.Read()
			return int(seen - was)
		}, c.Close},
		"a count of failures": {c, c.CountErr, func() int {
			was := failed
			failed = c.ReadErr()
			return int(failed - was)
		}, c.Close},
	}
}

func TestTryWait(t *testing.T) {
	for name, q := range polledObjects(t) {
		fd, err := q.FD()
		if again, _ := q.FD(); err != nil || again != fd {
			t.Fatalf("%s: descriptors %d and %d, %v", name, fd, again, err)
		}
		for lap := range 3 {
			if err := q.TryWait(); err != nil {
				t.Fatalf("%s: nothing there: %v", name, err)
			}
			if pollFor(t, fd, 0) {
				t.Fatalf("%s: nothing there, and readable", name)
			}
			q.happen()
			q.happen()
			if !pollFor(t, fd, deadline) {
				t.Fatalf("%s: lap %d: not readable", name, lap)
			}
			if err := q.TryWait(); err != fabric.ErrAgain {
				t.Fatalf("%s: something there: %v", name, err)
			}
			if pollFor(t, fd, 0) {
				t.Fatalf("%s: readable while nobody waits", name)
			}
			for q.take() > 0 {
			}
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: the descriptor goes to children: %v", name, err)
		}
	}
}

// TestTryWaitMissesNothing has a consumer that does what fabric.WaitObject says, and a producer
// that never waits for it.
func TestTryWaitMissesNothing(t *testing.T) {
	const total = 20000
	for name, q := range polledObjects(t) {
		fd, err := q.FD()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var asleep atomic.Bool
		ctx := testContext(t)
		start(&wg, func() {
			for i := range total {
				for i%256 == 0 && !asleep.Load() && ctx.Err() == nil {
					runtime.Gosched()
				}
				q.happen()
			}
		})
		got := 0
		for got < total {
			for q.TryWait() == fabric.ErrAgain {
				for n := q.take(); n > 0; n = q.take() {
					got += n
				}
			}
			if got == total {
				break
			}
			asleep.Store(true)
			if !pollFor(t, fd, deadline/2) {
				t.Fatalf("%s: %d of %d came, and no wake-up", name, got, total)
			}
			asleep.Store(false)
		}
		wg.Wait()
	}
}

func TestTryWaitTakesSignals(t *testing.T) {
	q := newCQ(t, 4)
	fd, err := q.FD()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := q.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	if first, second := q.TryWait(), q.TryWait(); first != fabric.ErrAgain || second != nil {
		t.Fatalf("signalled before: %v, then %v", first, second)
	}
	if err := q.Signal(); err != nil {
		t.Fatal(err)
	}
	if !pollFor(t, fd, deadline) {
		t.Fatal("signalled, and not readable")
	}
	push(t, q, 1)
	dst := make([]fabric.Completion, 1)
	if err := q.TryWait(); err != fabric.ErrAgain {
		t.Fatalf("entry and signal: %v", err)
	}
	if n, err := q.Read(dst); n != 1 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	if first, second := q.TryWait(), q.TryWait(); first != fabric.ErrAgain || second != nil {
		t.Fatalf("the signal after the entry: %v, then %v", first, second)
	}
}

func TestTryWaitDoesNotAllocate(t *testing.T) {
	objects := polledObjects(t)
	delete(objects, "failures") // the text of an error is kept apart
	for name, q := range objects {
		if n := testing.AllocsPerRun(1000, func() {
			_ = q.TryWait()
			q.happen()
			_ = q.TryWait()
			_ = q.take()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestSignalsReachBothWaiters has a goroutine in Wait and a waiter on the descriptor, and signals
// once for each.
func TestSignalsReachBothWaiters(t *testing.T) {
	q := newCQ(t, 4)
	if err := q.TryWait(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx := testContext(t)
	go func() {
		_, err := q.Wait(ctx, make([]fabric.Completion, 1))
		done <- err
	}()
	for waiting := false; !waiting; time.Sleep(time.Millisecond) {
		q.mu.Lock()
		waiting = q.parked == 1
		q.mu.Unlock()
	}
	for range 2 {
		if err := q.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.TryWait(); err != fabric.ErrAgain {
		t.Errorf("on the descriptor: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("in Wait: %v", err)
	}
}
