// SPDX-License-Identifier: MIT

package util

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
)

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
