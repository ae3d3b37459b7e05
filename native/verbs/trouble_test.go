// SPDX-License-Identifier: MIT

package verbs_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"mori/native/verbs"
)

// TestWrongKey: the request fails, those after it are flushed, and both queue pairs are in error.
func TestWrongKey(t *testing.T) {
	for name, change := range map[string]func(*verbs.SendWR, *region){
		"the key of nothing":  func(w *verbs.SendWR, _ *region) { w.RKey ^= 0x5a5a00 },
		"beyond the end":      func(w *verbs.SendWR, m *region) { w.RemoteAddr = m.addr + 4095 },
		"without the right":   func(w *verbs.SendWR, _ *region) { w.Op = verbs.OpRead },
		"a region that ended": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			a, b := r.pair(common)
			local, remote := r.region(4096, all), r.region(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
			wr := verbs.SendWR{ID: 1, Op: verbs.OpWrite, RemoteAddr: remote.addr, RKey: remote.Remote}
			if change != nil {
				change(&wr, remote)
			} else {
				mr, keys, err := r.pd.RegMR(remote.addr, 4096, remote.addr, all)
				r.ok(err)
				r.ok(mr.Close())
				wr.RKey = keys.Remote
			}
			b.receives(50, remote.sge(0, 8))
			a.posts(wr, local.sge(0, 8))
			a.posts(verbs.SendWR{ID: 2, Op: verbs.OpSend}, local.sge(0, 8))
			wcs := r.wait(a.send, 2)
			if wcs[0].ID != 1 || wcs[0].Status != verbs.StatusRemAccess || wcs[0].QPNum != a.num {
				t.Errorf("%+v (%v)", wcs[0], wcs[0].Status)
			}
			if wcs[1].ID != 2 || wcs[1].Status != verbs.StatusFlushed {
				t.Errorf("%+v (%v)", wcs[1], wcs[1].Status)
			}
			if s, err := a.State(); err != nil || s != verbs.StateErr {
				t.Errorf("the queue pair is in %v, %v", s, err)
			}
			if wc := r.wait(b.recv, 1)[0]; wc.ID != 50 || wc.Status == verbs.StatusSuccess {
				t.Errorf("the peer's receive: %+v (%v)", wc, wc.Status)
			}
		})
	}
}

func TestWrongLocalKey(t *testing.T) {
	r := newRig(t)
	a, _ := r.pair(common)
	local, remote := r.region(4096, all), r.region(4096, all)
	sge := local.sge(0, 8)
	sge.LKey ^= 0x5a5a00
	a.posts(verbs.SendWR{ID: 1, Op: verbs.OpWrite, RemoteAddr: remote.addr, RKey: remote.Remote}, sge)
	// Soft-RoCE says that it is an operation error.
	if wc := r.wait(a.send, 1)[0]; wc.ID != 1 || wc.Status != verbs.StatusLocProt && wc.Status != verbs.StatusLocQPOp {
		t.Errorf("%+v (%v)", wc, wc.Status)
	}
}

// TestFailAndAgain: a queue pair that fails flushes what is posted, and is as new after Reset.
func TestFailAndAgain(t *testing.T) {
	r := newRig(t)
	a, b := r.pair(common)
	local := r.region(4096, all)
	for i := range 3 {
		b.receives(uint64(i), local.sge(0, 64))
	}
	r.ok(b.Fail())
	for i, wc := range r.wait(b.recv, 3) {
		if wc.ID != uint64(i) || wc.Status != verbs.StatusFlushed {
			t.Errorf("%+v (%v)", wc, wc.Status)
		}
	}
	b.posts(verbs.SendWR{ID: 9, Op: verbs.OpSend}, local.sge(0, 8))
	if wc := r.wait(b.send, 1)[0]; wc.ID != 9 || wc.Status != verbs.StatusFlushed {
		t.Errorf("%+v (%v)", wc, wc.Status)
	}
	for _, e := range []*end{a, b} {
		r.ok(e.Reset())
		if s, err := e.State(); err != nil || s != verbs.StateReset {
			t.Errorf("it is in %v, %v", s, err)
		}
	}
	a.connect(b)
	b.connect(a)
	fill(local.bytes, 1)
	b.receives(20, local.sge(2048, 64))
	a.posts(verbs.SendWR{ID: 21, Op: verbs.OpSend, Flags: verbs.Signaled}, local.sge(0, 64))
	r.done(a.send, 21, verbs.WCSend)
	r.done(b.recv, 20, verbs.WCRecv)
}

// TestChannel: an armed queue reports the next completion by its token, once.
func TestChannel(t *testing.T) {
	r := newRig(t)
	h, err := r.ctx.NewChannel()
	r.ok(err)
	r.closes(h)
	if _, err := h.Next(); !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("an event of nothing: %v", err)
	}
	in := common
	const token = 1<<63 | 12345
	in.SendCQ, in.RecvCQ = r.cq(16, h, token), r.cq(16, h, 8)
	a, _ := r.pair(in)
	local, remote := r.region(4096, all), r.region(4096, all)
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: remote.addr, RKey: remote.Remote}
	for range 3 {
		r.ok(a.send.Arm())
		r.none(a.send)
		a.posts(wr, local.sge(0, 8))
		r.eventually(func() error {
			got, err := h.Next()
			if err == nil && got != token {
				t.Errorf("it is the event of %#x", got)
			}
			return err
		})
		r.done(a.send, 0, verbs.WCWrite)
		a.posts(wr, local.sge(0, 8)) // not armed
		r.done(a.send, 0, verbs.WCWrite)
		if got, err := h.Next(); !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("a queue that is not armed told %#x, %v", got, err)
		}
	}
	if h.FD() < 0 || r.ctx.AsyncFD() < 0 {
		t.Error(h.FD(), r.ctx.AsyncFD())
	}
}

func TestNoEvent(t *testing.T) {
	r := newRig(t)
	for {
		e, err := r.ctx.AsyncEvent()
		if errors.Is(err, syscall.EAGAIN) {
			return
		}
		r.ok(err)
		t.Log(e)
	}
}

// TestRegistrationRefused: of memory that is not there, and of a descriptor that is no dma-buf.
func TestRegistrationRefused(t *testing.T) {
	r := newRig(t)
	b, addr := memory(t, 4096)
	_ = b
	const none = 1 << 20 // below vm.mmap_min_addr there is never anything, and rarely here
	if _, _, err := r.pd.RegMR(none, 4096, none, all); err == nil || !strings.Contains(err.Error(), "register 4096 bytes at 0x100000: ") {
		t.Errorf("memory that is not there: %v", err)
	}
	if _, _, err := r.pd.RegMR(addr, 4096, addr, verbs.AccessRemoteWrite); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a remote write without a local one: %v", err)
	}
	f, err := os.Open(os.DevNull)
	r.ok(err)
	r.closes(f)
	if _, _, err := r.pd.RegDmabuf(0, 4096, 0, int(f.Fd()), all); err == nil || !strings.Contains(err.Error(), "register 4096 bytes at 0 of a dma-buf: ") {
		t.Errorf("a file that is no dma-buf: %v", err)
	} else {
		t.Log(err)
	}
}

// TestStillUsed: what something was made of does not close before it.
func TestStillUsed(t *testing.T) {
	r := newRig(t)
	h, err := r.ctx.NewChannel()
	r.ok(err)
	r.closes(h)
	q := r.cq(16, h, 0)
	in := common
	in.SendCQ, in.RecvCQ = q, q
	r.end(in)
	r.region(4096, all)
	for what, c := range map[string]interface{ Close() error }{"domain": r.pd, "queue": q, "channel": h} {
		if err := c.Close(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("the %s closes: %v", what, err)
		}
	}
}

func TestTooMuch(t *testing.T) {
	r := newRig(t)
	attr, err := r.ctx.Query()
	r.ok(err)
	if _, err := r.ctx.NewCQ(attr.MaxCQE+1, 0, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a queue of too many entries: %v", err)
	}
	q := r.cq(16, 0, 0)
	for _, in := range []verbs.QPInit{
		{SendWR: attr.MaxQPWR + 1, SendSGE: 1}, {SendWR: 1, SendSGE: attr.MaxSGE + 1}, {SendWR: 1, SendSGE: 1, Inline: 1 << 24}, {SendWR: -1},
	} {
		in.SendCQ, in.RecvCQ = q, q
		if _, _, _, err := r.pd.NewQP(in); err == nil || !strings.Contains(err.Error(), "create a queue pair of ") {
			t.Errorf("%+v: %v", in, err)
		}
	}
}

// TestPathRefused: connecting by a GID that there is not, or with an MTU that is none, says so.
func TestPathRefused(t *testing.T) {
	r := newRig(t)
	a := r.end(common)
	r.ok(a.Init(r.port, all))
	good := verbs.RTR{MTU: r.state.MTU, DestQP: a.num, Port: r.port, GIDIndex: r.gid.Index, GID: r.gid.GID, LID: r.state.LID, Global: true, HopLimit: 64, MinRNRTimer: 12}
	for name, change := range map[string]func(*verbs.RTR){
		"MTU 1500": func(c *verbs.RTR) { c.MTU = 1500 },
		"GID 250":  func(c *verbs.RTR) { c.GIDIndex = 250 },
		"GID 999":  func(c *verbs.RTR) { c.GIDIndex = 999 },
	} {
		rtr := good
		change(&rtr)
		if err := a.RTR(rtr); err == nil || !strings.Contains(err.Error(), name+": ") && !strings.Contains(err.Error(), name+",") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.RTS(verbs.RTS{Timeout: 18, Retries: 7, RNRRetries: 7}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("it sends before it is connected: %v", err)
	}
	r.ok(a.RTR(good))
}
