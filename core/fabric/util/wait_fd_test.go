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

// TestTryWaitMissesNothing has a consumer that does what fabric.WaitObject tells, and a producer that never waits for it.
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

// epollFor starts to sleep on fd in epoll_wait, for as long as the answer says.
func epollFor(t *testing.T, fd int) (woken chan int) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(ep) })
	woken = make(chan int, 1)
	go func() {
		for {
			n, err := unix.EpollWait(ep, make([]unix.EpollEvent, 1), int(deadline.Milliseconds()))
			if err != unix.EINTR {
				woken <- n
				return
			}
		}
	}()
	return woken
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func TestCloseWakesWhoWaitsOnTheDescriptor(t *testing.T) {
	objects := polledObjects(t)
	for _, name := range []string{"completions", "events", "a count"} {
		q := objects[name]
		fd, err := q.FD()
		if err != nil {
			t.Fatal(err)
		}
		if err := q.TryWait(); err != nil {
			t.Fatal(err)
		}
		woken := epollFor(t, fd)
		time.Sleep(time.Millisecond)
		if err := q.close(); err != nil {
			t.Fatal(err)
		}
		if n := <-woken; n != 1 {
			t.Errorf("%s: the waiter slept on", name)
		}
		if _, err := q.FD(); err != fabric.ErrClosed {
			t.Errorf("%s: descriptor after close: %v", name, err)
		}
		for range 2 {
			if err := q.TryWait(); err != fabric.ErrClosed {
				t.Errorf("%s: after close: %v", name, err)
			}
		}
		if isOpen(fd) {
			t.Errorf("%s: the descriptor is open after the waiter left", name)
		}
	}
}

func TestCloseClosesADescriptorThatNobodyWaitsOn(t *testing.T) {
	q := newCQ(t, 4)
	fd, err := q.FD()
	if err != nil {
		t.Fatal(err)
	}
	push(t, q, 1)
	if err := q.TryWait(); err != fabric.ErrAgain {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil || isOpen(fd) {
		t.Fatalf("close: %v, descriptor open: %v", err, isOpen(fd))
	}
}

// TestDescriptorGoesWithTheQueue: a waiter that does not come back does not keep the descriptor.
func TestDescriptorGoesWithTheQueue(t *testing.T) {
	fd := func() int {
		q := newCQ(t, 4)
		fd, err := q.FD()
		if err != nil {
			t.Fatal(err)
		}
		if err := q.TryWait(); err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil || !isOpen(fd) {
			t.Fatalf("close: %v, descriptor open: %v", err, isOpen(fd))
		}
		return fd
	}()
	for ctx := testContext(t); isOpen(fd); runtime.GC() {
		if ctx.Err() != nil {
			t.Fatal("the descriptor stays open")
		}
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
		t.Fatal("nobody is told to arm the new source")
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
