// SPDX-License-Identifier: MIT

package verbstest

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mori/native/verbs"
)

// TestPortDown: pending work continues if the link comes back in time, and ends with retries
// exceeded if not, whosever link it is.
func TestPortDown(t *testing.T) {
	for name, device := range map[string]int{"mine": 0, "the peer's": 1} {
		t.Run(name, func(t *testing.T) {
			NeedEmulated(t)
			x := newTester(t, 0, 1, common, func(a, _ *settings) { a.retries = 7 })
			hears := []*side{x.a, x.b}[device]
			Timeout(t, 10000)
			up := PortDown(t, device)
			x.event(hears, verbs.EventPortErr)
			if p, err := hears.ctx.Port(1); err != nil || p.State != verbs.PortDown {
				t.Errorf("the port is %v: %v", p.State, err)
			}
			x.ask(1, nil)
			time.Sleep(10 * time.Millisecond)
			if n, err := x.a.send.Poll(make([]verbs.WC, 1)); n != 0 || err != nil {
				t.Errorf("%d completions came over a link that is down: %v", n, err)
			}
			up()
			if e := x.event(hears, verbs.EventPortActive); e.Port != 1 {
				t.Errorf("the event is of port %d", e.Port)
			}
			x.ends(x.a.send, verbs.StatusSuccess)
			Timeout(t, 5)
			PortDown(t, device)
			x.ask(1, nil)
			x.ask(2, nil)
			x.ends(x.a.send, verbs.StatusRetryExceeded, verbs.StatusFlushed)
		})
	}
}

// TestHold: nothing moves, and nothing times out.
func TestHold(t *testing.T) {
	for name, device := range map[string]int{"mine": 0, "the peer's": 1} {
		t.Run(name, func(t *testing.T) {
			NeedEmulated(t)
			x := newTester(t, 0, 1, common)
			Timeout(t, 1)
			release := Hold(t, device)
			x.a.buf[0] = 1
			x.ask(1, nil)
			time.Sleep(20 * time.Millisecond)
			if n, err := x.a.send.Poll(make([]verbs.WC, 1)); n != 0 || err != nil || x.b.buf[0] != 0 {
				t.Errorf("%d completions, byte %d came while nothing may move: %v", n, x.b.buf[0], err)
			}
			release()
			x.ends(x.a.send, verbs.StatusSuccess)
		})
	}
}

// TestRemove: all calls answer EIO but those that close, and the device is in no list until it is
// back.
func TestRemove(t *testing.T) {
	NeedEmulated(t)
	x := newTester(t, 0, 1, common)
	back := Remove(t, 0)
	x.event(x.a, verbs.EventDeviceFatal)
	if _, err := x.a.send.Poll(make([]verbs.WC, 1)); !errors.Is(err, syscall.EIO) {
		t.Error("poll:", err)
	}
	if err := x.a.post(verbs.SendWR{Op: verbs.OpWrite}, x.a.sge(0, 1)); !errors.Is(err, syscall.EIO) {
		t.Error("post:", err)
	}
	if _, err := x.a.ctx.Query(); !errors.Is(err, syscall.EIO) {
		t.Error("query:", err)
	}
	if all, err := verbs.Devices(); err != nil || len(all) != 1 || all[0].Name != "emu1" {
		t.Errorf("the devices are %v: %v", all, err)
	}
	x.ok(x.b.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, RemoteAddr: x.a.Addr, RKey: x.a.RKey}, x.b.sge(0, 8)))
	x.ends(x.b.send, verbs.StatusRetryExceeded)
	back()
	ctx, err := verbs.Open("emu0")
	x.ok(err)
	_, err = ctx.Query()
	x.ok(errors.Join(err, ctx.Close()))
	if _, err := x.a.ctx.Query(); !errors.Is(err, syscall.EIO) {
		t.Error("a context of before is back:", err)
	}
}

func TestDropGID(t *testing.T) {
	NeedEmulated(t)
	x := newTester(t, 0, 1, common)
	back := DropGID(t, 0, x.a.gid.Index)
	x.event(x.a, verbs.EventGIDChange)
	gids, err := x.a.ctx.GIDs(1)
	x.ok(err)
	for _, g := range gids {
		if g.Index == x.a.gid.Index {
			t.Errorf("the GID is still there: %+v", g)
		}
	}
	x.ask(1, nil)
	x.ends(x.a.send, verbs.StatusRetryExceeded)
	back()
}

func TestFailNext(t *testing.T) {
	NeedEmulated(t)
	x := newTester(t, 0, 1, common)
	x.ok(x.b.receive(1, x.b.sge(0, 8)))
	FailNext(t, verbs.OpSend, verbs.StatusFatal)
	x.ask(1, nil)
	x.ask(2, func(w *verbs.SendWR) { w.Op = verbs.OpSend })
	x.ends(x.a.send, verbs.StatusSuccess, verbs.StatusFatal)
}

func TestFailAndLimit(t *testing.T) {
	NeedEmulated(t)
	x := newTester(t, 0, 1, common)
	Fail(t, "ibv_create_cq=12,ibv_reg_mr=1")
	if _, err := x.a.ctx.NewCQ(1, 0, 0); !errors.Is(err, syscall.ENOMEM) {
		t.Error(err)
	}
	if _, _, err := x.a.pd.RegMR(x.a.Addr, 8, x.a.Addr, allow); !errors.Is(err, syscall.EPERM) {
		t.Error(err)
	}
	Fail(t, "")
	Limit(t, "max_mr_size=4096", "max_qp_wr=8", "max_cqe=9", "active_mtu=1")
	for what, f := range map[string]func() error{
		"region": func() error { _, _, err := x.a.pd.RegMR(x.a.Addr, 4097, x.a.Addr, allow); return err },
		"pair": func() error {
			_, _, _, err := x.a.pd.NewQP(verbs.QPInit{SendCQ: x.a.send, RecvCQ: x.a.recv, SendWR: 9})
			return err
		},
		"queue": func() error { _, err := x.a.ctx.NewCQ(10, 0, 0); return err },
		"path":  func() error { return errors.Join(x.a.qp.Reset(), x.a.connect(x.b.address, usual())) },
	} {
		if err := f(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a %s that is too large: %v", what, err)
		}
	}
	if a, err := x.a.ctx.Query(); err != nil || a.MaxMRSize != 4096 || a.MaxQPWR != 8 {
		t.Errorf("%+v, %v", a, err)
	}
	Count(t, 0)
	if d, err := verbs.Devices(); err != nil || len(d) != 0 {
		t.Errorf("%v, %v", d, err)
	}
	Count(t, 3)
	if d, err := verbs.Devices(); err != nil || len(d) != 3 {
		t.Errorf("%v, %v", d, err)
	}
}

// TestEvents: an armed queue notifies its channel once, of the next completion and of none that
// came before.
func TestEvents(t *testing.T) {
	x := newTester(t, 0, 1, common)
	x.ask(1, nil)
	x.ends(x.a.send, verbs.StatusSuccess)
	x.ok(x.a.send.Arm())
	if readable(t, x.a.channel.FD()) || readable(t, x.a.ctx.AsyncFD()) {
		t.Error("a descriptor is readable before there is an event")
	}
	if token, err := x.a.channel.Next(); !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("an event of %d came: %v", token, err)
	}
	x.ask(1, nil)
	x.ask(2, nil)
	var token uint64
	var err error
	for end := time.Now().Add(patience); !readable(t, x.a.channel.FD()) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if token, err = x.a.channel.Next(); !errors.Is(err, syscall.EAGAIN) {
			break
		}
	}
	if token != 1 || err != nil {
		t.Fatalf("the event is of %d: %v", token, err)
	}
	x.ends(x.a.send, verbs.StatusSuccess, verbs.StatusSuccess)
	if token, err := x.a.channel.Next(); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("one more event came, of %d: %v", token, err)
	}
}

// readable reports whether a descriptor has something to read.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err != nil && !errors.Is(err, syscall.EINTR) {
		t.Fatal(err)
	}
	return n > 0
}

// TestFence: a write that follows a read and takes its bytes from where the read puts them has the
// wrong ones in some order, unless it has the fence.
func TestFence(t *testing.T) {
	NeedEmulated(t)
	for _, fence := range []bool{true, false} {
		stale := 0
		x := newTester(t, 0, 1, common)
		for i := range 40 {
			Delay(t, i+1)
			x.b.buf[0], x.a.buf[0] = byte(i+1), 0xff
			flags := verbs.Signaled
			if fence {
				flags |= verbs.Fence
			}
			x.ask(1, func(w *verbs.SendWR) { w.Op = verbs.OpRead })
			x.ask(2, func(w *verbs.SendWR) { w.RemoteAddr, w.Flags = w.RemoteAddr+64, flags })
			x.ends(x.a.send, verbs.StatusSuccess, verbs.StatusSuccess)
			if x.b.buf[64] != byte(i+1) {
				stale++
			}
		}
		if fence != (stale == 0) {
			t.Errorf("fence %v: %d of 40 writes were of bytes before the read", fence, stale)
		}
	}
}

// TestCounts: a device knows its bytes, and objects that are closed are gone.
func TestCounts(t *testing.T) {
	NeedEmulated(t)
	objects := Objects(t)
	t.Run("use", func(t *testing.T) {
		x := newTester(t, 0, 1, common)
		Most(t, "posted")
		before, other := Bytes(t, 0), Bytes(t, 1)
		x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: x.b.Addr, RKey: x.b.RKey}, x.a.sge(0, 1000)))
		x.ends(x.a.send, verbs.StatusSuccess)
		if n, m := Bytes(t, 0)-before, Bytes(t, 1)-other; n != 1000 || m != 0 {
			t.Errorf("the devices did %d and %d bytes, want 1000 and 0", n, m)
		}
		if n := Most(t, "posted"); n != 1 {
			t.Errorf("one call posted %d requests, want 1", n)
		}
		if n := Most(t, "posted"); n != 0 {
			t.Errorf("%d requests were posted since", n)
		}
		if n := Objects(t) - objects; n != 14 { // of each side: context, domain, channel, two queues, pair, region
			t.Errorf("there are %d objects more", n)
		}
	})
	if n := Objects(t); n != objects {
		t.Errorf("%d objects were left", n-objects)
	}
}
