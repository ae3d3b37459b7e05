// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
)

var waitCases = []testCase{
	{"an armed queue becomes readable with its next entry", armed},
	{"an armed queue becomes readable with an error", func(r *rig) {
		a, b := r.pair(shape{})
		to := a.imports(b.reg(r.alloc(8), bothRights).Raw())
		r.arm(a.cq)
		a.submit(fabric.Op{Kind: fabric.OpRead, Seg: r.alloc(8).seg(), RSeg: to.at(1, 8), Ctx: 4})
		r.wakes(a.cq)
		if e := a.read(); e.Err == 0 || e.Ctx != 4 {
			r.Errorf("got %+v", e)
		}
		if !r.fatal() {
			r.arm(a.cq)
		}
	}},
	{"a signal makes an armed queue readable", func(r *rig) {
		cq := r.host().cq(8)
		dst := make([]fabric.Completion, 1)
		for range 3 {
			r.arm(cq)
			r.must(cq.Signal())
			r.wakes(cq)
			_, err := cq.Read(dst)
			r.want("read", err, fabric.ErrAgain)
			r.arm(cq) // it was notified
			r.must(cq.Signal())
			r.want("arm after another", cq.TryWait(), fabric.ErrAgain)
			_, err = cq.Read(dst)
			r.want("read", err, fabric.ErrAgain)
		}
	}},
	{"an armed counter becomes readable when it changes", func(r *rig) {
		c := r.host().counter()
		for _, change := range []func() error{
			func() error { return c.Add(1) }, func() error { return c.AddErr(1) },
			func() error { return c.Set(c.Read() + 7) }, func() error { return c.SetErr(c.ReadErr() + 7) },
		} {
			r.armCounter(c)
			r.must(change())
			r.wakes(c)
		}
	}},
	{"an armed counter becomes readable when an op ends", func(r *rig) {
		h := r.host()
		c := h.counter()
		a := h.node(shape{bind: func(n *node) { n.must(n.ep.BindCounter(c, fabric.CountWrite)) }})
		b := r.host().node(shape{})
		r.join(a, b)
		to := a.imports(b.reg(r.alloc(8), bothRights).Raw())
		for range 10 {
			r.armCounter(c)
			a.submit(fabric.Op{Kind: fabric.OpWrite, RSeg: to.at(0, 0)})
			r.wakes(c)
		}
		r.counts(c, 10)
	}},
	{"a sleeper wakes when its queue closes", func(r *rig) {
		h := r.host()
		cq, c := h.cq(8), h.counter()
		r.arm(cq)
		r.armCounter(c)
		for _, q := range []interface {
			fabric.WaitObject
			Close() error
		}{cq, c} {
			fd := r.fd(q)
			r.must(q.Close())
			if !r.poll(fd, patience) {
				r.Errorf("%T closed, and nobody heard", q)
			}
			r.want("arm", q.TryWait(), fabric.ErrClosed)
		}
	}},
	{"a sleeper in poll misses none of many messages", func(r *rig) { sleeper(r, r.poll) }},
	{"a sleeper in epoll misses none of many messages", func(r *rig) {
		ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		r.must(err)
		defer unix.Close(ep)
		known := make(map[int]bool)
		sleeper(r, func(fd int, patience time.Duration) bool {
			if !known[fd] {
				r.must(unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
				known[fd] = true
			}
			var events [4]unix.EpollEvent
			for deadline := time.Now().Add(patience); ; {
				n, err := unix.EpollWait(ep, events[:], max(0, int(time.Until(deadline).Milliseconds())))
				if err == nil || !errors.Is(err, unix.EINTR) {
					r.must(err)
					return n > 0
				}
			}
		})
	}},
	{"a sleeper whose queue is never empty sees every entry", func(r *rig) {
		const count = 500
		a, b := r.pair(shape{})
		to := a.imports(b.reg(r.alloc(8), bothRights).Raw())
		left := count
		for i := range uint64(count) {
			a.submit(fabric.Op{Kind: fabric.OpWrite, RSeg: to.at(0, 0), Ctx: i})
			if err := a.cq.TryWait(); err == nil {
				r.wakes(a.cq)
			}
			left -= a.drain()
		}
		for left > 0 {
			if a.cq.TryWait() == nil {
				r.wakes(a.cq)
			}
			left -= a.drain()
		}
		a.silent()
	}},
}

var waitMsgCases = []testCase{
	{"an armed event queue becomes readable with its next event", func(r *rig) {
		a, b := r.host().node(shape{}), r.host().node(shape{})
		r.arm(a.eq)
		r.connect(a, b)
		r.wakes(a.eq)
		a.event(fabric.EventConnected)
		r.arm(a.eq)
		r.must(b.cn.Shutdown())
		r.wakes(a.eq)
		a.event(fabric.EventShutdown)
		r.arm(a.eq)
	}},
}

// patience is how long a sleeper sleeps before a wake-up counts as lost.
const patience = caseDeadline / 4

// poll sleeps until fd is readable, and reports whether it is.
func (r *rig) poll(fd int, patience time.Duration) bool {
	r.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(patience); ; {
		n, err := unix.Poll(fds, max(0, int(time.Until(deadline).Milliseconds())))
		if err == nil || !errors.Is(err, unix.EINTR) {
			r.must(err)
			return n > 0
		}
	}
}

// fd is the descriptor of a queue that has the same one at every call.
func (r *rig) fd(w fabric.WaitObject) int {
	r.Helper()
	fd, err := w.FD()
	r.must(err)
	if again, err := w.FD(); again != fd || err != nil {
		r.Fatalf("the descriptor was %d and is %d, %v", fd, again, err)
	}
	return fd
}

// arm fails the case unless the queue is empty, and not readable then.
func (r *rig) arm(w fabric.WaitObject) {
	r.Helper()
	if err := w.TryWait(); err != nil {
		r.Fatalf("arm an empty queue: %v", err)
	}
	if r.poll(r.fd(w), 0) {
		r.Fatal("an empty queue is readable")
	}
}

// armCounter arms a counter past a change that it may still have to report.
func (r *rig) armCounter(c fabric.Counter) {
	r.Helper()
	if err := c.TryWait(); err != nil {
		r.want("arm", err, fabric.ErrAgain)
		_, _ = c.Read(), c.ReadErr()
		r.must(c.TryWait())
	}
	if r.poll(r.fd(c), 0) {
		r.Fatal("a counter that has not changed is readable")
	}
}

// wakes sleeps on an armed queue until there is something to read. It may be woken for nothing, but
// not for ever.
func (r *rig) wakes(w fabric.WaitObject) {
	r.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if !r.poll(r.fd(w), patience) {
			break
		}
		if err := w.TryWait(); err != nil {
			r.want("arm a queue with something to read", err, fabric.ErrAgain)
			return
		}
	}
	r.Fatalf("%T did not wake its sleeper within %v", w, patience)
}

func armed(r *rig) {
	a, b := r.pair(shape{})
	src, dst := r.patterned(64, 1), r.alloc(64)
	to := a.imports(b.reg(dst, bothRights).Raw())
	for i := range uint64(20) {
		r.arm(a.cq)
		r.arm(b.cq)
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: i})
		r.arm(b.cq)
		a.submit(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: i})
		r.wakes(a.cq)
		r.wakes(b.cq)
		a.ok(i)
		b.ok(i)
		r.arm(b.cq)
		a.submit(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.seg(), RSeg: to.at(0, 64), Data: i, Ctx: i})
		r.wakes(b.cq)
		if c := b.ok(0); c.Data != i {
			r.Fatalf("round %d: %+v", i, c)
		}
		a.ok(i)
	}
}

// sleeper receives messages with the loop of WaitObject's comment only: a wake-up that is lost is a
// sleep that does not end.
func sleeper(r *rig, sleep func(fd int, patience time.Duration) bool) {
	const count, posted = 3000, 8
	a, b := r.pair(shape{})
	src, dst := r.patterned(8, 1), r.alloc(8)
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(count) {
			err := a.send(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: i}) // one at a time, so that the sleeper sleeps
			if err != nil || i == count-1 {
				sent <- err
				return
			}
		}
	}()
	for range posted {
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg()})
	}
	fd := r.fd(b.cq)
	for got := 0; got < count; {
		for got < count {
			err := b.cq.TryWait()
			if err == nil {
				break
			}
			r.want("arm", err, fabric.ErrAgain)
			k := b.drain()
			got += k
			for range k {
				b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg()})
			}
		}
		if got < count && !sleep(fd, patience) {
			r.Fatalf("slept for %v after %d of %d messages", patience, got, count)
		}
	}
	r.must(<-sent)
}
