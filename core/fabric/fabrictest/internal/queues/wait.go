// SPDX-License-Identifier: MIT

package queues

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// WaitCases are the cases of descriptors to wait on.
var WaitCases = []rig.Case{
	{Name: "an armed queue becomes readable with its next entry", Run: armed},
	{Name: "an armed queue becomes readable with an error", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		to := a.Imports(b.Reg(r.Alloc(8), rig.BothRights).Raw())
		arm(r, a.CQ)
		a.Submit(fabric.Op{Kind: fabric.OpRead, Seg: r.Alloc(8).Seg(), RSeg: to.At(1, 8), Ctx: 4})
		wakesSleeper(r, a.CQ)
		if e := a.Read(); e.Err == 0 || e.Ctx != 4 {
			r.Errorf("got %+v", e)
		}
		if !r.DenialEnds() {
			arm(r, a.CQ)
		}
	}},
	{Name: "a signal makes an armed queue readable", Run: func(r *rig.Rig) {
		cq := r.Host().CQ(8)
		dst := make([]fabric.Completion, 1)
		for range 3 {
			arm(r, cq)
			r.Must(cq.Signal())
			wakesSleeper(r, cq)
			_, err := cq.Read(dst)
			r.Want("read", err, fabric.ErrAgain)
			arm(r, cq) // it was notified
			r.Must(cq.Signal())
			r.Want("arm after another", cq.TryWait(), fabric.ErrAgain)
			_, err = cq.Read(dst)
			r.Want("read", err, fabric.ErrAgain)
		}
	}},
	{Name: "an armed counter becomes readable when it changes", Run: func(r *rig.Rig) {
		c := r.Host().Counter()
		for _, change := range []func() error{
			func() error { return c.Add(1) }, func() error { return c.AddErr(1) },
			func() error { return c.Set(c.Read() + 7) }, func() error { return c.SetErr(c.ReadErr() + 7) },
		} {
			armCounter(r, c)
			r.Must(change())
			wakesSleeper(r, c)
		}
	}},
	{Name: "an armed counter becomes readable when an op ends", Run: func(r *rig.Rig) {
		h := r.Host()
		c := h.Counter()
		a := h.Node(rig.Shape{Bind: func(n *rig.Node) { n.Must(n.EP.BindCounter(c, fabric.CountWrite)) }})
		b := r.Host().Node(rig.Shape{})
		r.Join(a, b)
		to := a.Imports(b.Reg(r.Alloc(8), rig.BothRights).Raw())
		for range 10 {
			armCounter(r, c)
			a.Submit(fabric.Op{Kind: fabric.OpWrite, RSeg: to.At(0, 0)})
			wakesSleeper(r, c)
		}
		counts(r, c, 10)
	}},
	{Name: "a sleeper wakes when its queue closes", Run: func(r *rig.Rig) {
		h := r.Host()
		cq, c := h.CQ(8), h.Counter()
		arm(r, cq)
		armCounter(r, c)
		for _, q := range []interface {
			fabric.WaitObject
			Close() error
		}{cq, c} {
			fd := descriptor(r, q)
			r.Must(q.Close())
			if !poll(r, fd, patience) {
				r.Errorf("%T closed, and nobody heard", q)
			}
			r.Want("arm", q.TryWait(), fabric.ErrClosed)
		}
	}},
	{Name: "a sleeper in poll misses none of many messages", Run: func(r *rig.Rig) {
		sleeper(r, func(fd int, patience time.Duration) bool { return poll(r, fd, patience) })
	}},
	{Name: "a sleeper in epoll misses none of many messages", Run: func(r *rig.Rig) {
		ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		r.Must(err)
		defer unix.Close(ep)
		known := make(map[int]bool)
		sleeper(r, func(fd int, patience time.Duration) bool {
			if !known[fd] {
				r.Must(unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
				known[fd] = true
			}
			var events [4]unix.EpollEvent
			for deadline := time.Now().Add(patience); ; {
				n, err := unix.EpollWait(ep, events[:], max(0, int(time.Until(deadline).Milliseconds())))
				if err == nil || !errors.Is(err, unix.EINTR) {
					r.Must(err)
					return n > 0
				}
			}
		})
	}},
	{Name: "a sleeper whose queue is never empty sees every entry", Run: func(r *rig.Rig) {
		const count = 500
		a, b := r.Pair(rig.Shape{})
		to := a.Imports(b.Reg(r.Alloc(8), rig.BothRights).Raw())
		left := count
		for i := range uint64(count) {
			a.Submit(fabric.Op{Kind: fabric.OpWrite, RSeg: to.At(0, 0), Ctx: i})
			if err := a.CQ.TryWait(); err == nil {
				wakesSleeper(r, a.CQ)
			}
			left -= rig.DrainQueue(a)
		}
		for left > 0 {
			if a.CQ.TryWait() == nil {
				wakesSleeper(r, a.CQ)
			}
			left -= rig.DrainQueue(a)
		}
		a.Silent()
	}},
}

// WaitMsgCases are the cases of descriptors to wait on, for EPMsg only.
var WaitMsgCases = []rig.Case{
	{Name: "an armed event queue becomes readable with its next event", Run: func(r *rig.Rig) {
		a, b := r.Host().Node(rig.Shape{}), r.Host().Node(rig.Shape{})
		arm(r, a.EQ)
		r.Connect(a, b)
		wakesSleeper(r, a.EQ)
		a.Event(fabric.EventConnected)
		arm(r, a.EQ)
		r.Must(b.Conn.Shutdown())
		wakesSleeper(r, a.EQ)
		a.Event(fabric.EventShutdown)
		arm(r, a.EQ)
	}},
}

// patience is how long a sleeper sleeps before a wake-up counts as lost.
const patience = rig.CaseDeadline / 4

// poll sleeps until fd is readable, and reports whether it is.
func poll(r *rig.Rig, fd int, patience time.Duration) bool {
	r.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(patience); ; {
		n, err := unix.Poll(fds, max(0, int(time.Until(deadline).Milliseconds())))
		if err == nil || !errors.Is(err, unix.EINTR) {
			r.Must(err)
			return n > 0
		}
	}
}

// descriptor is the descriptor of a queue that has the same one at every call.
func descriptor(r *rig.Rig, w fabric.WaitObject) int {
	r.Helper()
	fd, err := w.FD()
	r.Must(err)
	if again, err := w.FD(); again != fd || err != nil {
		r.Fatalf("the descriptor was %d and is %d, %v", fd, again, err)
	}
	return fd
}

// arm fails the case unless the queue is empty, and not readable then.
func arm(r *rig.Rig, w fabric.WaitObject) {
	r.Helper()
	if err := w.TryWait(); err != nil {
		r.Fatalf("arm an empty queue: %v", err)
	}
	if poll(r, descriptor(r, w), 0) {
		r.Fatal("an empty queue is readable")
	}
}

// armCounter arms a counter past a change that it may still have to report.
func armCounter(r *rig.Rig, c fabric.Counter) {
	r.Helper()
	if err := c.TryWait(); err != nil {
		r.Want("arm", err, fabric.ErrAgain)
		_, _ = c.Read(), c.ReadErr()
		r.Must(c.TryWait())
	}
	if poll(r, descriptor(r, c), 0) {
		r.Fatal("a counter that has not changed is readable")
	}
}

// wakesSleeper sleeps on an armed queue until there is something to read. Spurious wakeups are
// allowed, but not without end.
func wakesSleeper(r *rig.Rig, w fabric.WaitObject) {
	r.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if !poll(r, descriptor(r, w), patience) {
			break
		}
		if err := w.TryWait(); err != nil {
			r.Want("arm a queue with something to read", err, fabric.ErrAgain)
			return
		}
	}
	r.Fatalf("%T did not wake its sleeper within %v", w, patience)
}

func armed(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	src, dst := r.Patterned(64, 1), r.Alloc(64)
	to := a.Imports(b.Reg(dst, rig.BothRights).Raw())
	for i := range uint64(20) {
		arm(r, a.CQ)
		arm(r, b.CQ)
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: i})
		arm(r, b.CQ)
		a.Submit(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: i})
		wakesSleeper(r, a.CQ)
		wakesSleeper(r, b.CQ)
		a.OK(i)
		b.OK(i)
		arm(r, b.CQ)
		a.Submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.Seg(), RSeg: to.At(0, 64), Data: i, Ctx: i})
		wakesSleeper(r, b.CQ)
		if c := b.OK(0); c.Data != i {
			r.Fatalf("round %d: %+v", i, c)
		}
		a.OK(i)
	}
}

// sleeper receives messages with the loop of WaitObject's comment only: a wake-up that is lost is a
// sleep that does not end.
func sleeper(r *rig.Rig, sleep func(fd int, patience time.Duration) bool) {
	const count, posted = 3000, 8
	a, b := r.Pair(rig.Shape{})
	src, dst := r.Patterned(8, 1), r.Alloc(8)
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(count) {
			err := a.Send(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: i}) // one at a time, so that the sleeper sleeps
			if err != nil || i == count-1 {
				sent <- err
				return
			}
		}
	}()
	for range posted {
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg()})
	}
	fd := descriptor(r, b.CQ)
	for got := 0; got < count; {
		for got < count {
			err := b.CQ.TryWait()
			if err == nil {
				break
			}
			r.Want("arm", err, fabric.ErrAgain)
			k := rig.DrainQueue(b)
			got += k
			for range k {
				b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg()})
			}
		}
		if got < count && !sleep(fd, patience) {
			r.Fatalf("slept for %v after %d of %d messages", patience, got, count)
		}
	}
	r.Must(<-sent)
}
