// SPDX-License-Identifier: MIT

package verbs_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

// event waits for the next event of a kind.
func (r *rig) event(kind verbs.EventKind) (e verbs.AsyncEvent) {
	r.Helper()
	r.eventually(func() (err error) {
		for e.Kind = 255; err == nil && e.Kind != kind; {
			e, err = r.ctx.AsyncEvent()
		}
		return err
	})
	return e
}

func TestPortEvents(t *testing.T) {
	verbstest.NeedEmulated(t)
	r := newRig(t)
	if e, err := r.ctx.AsyncEvent(); !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("an event of nothing: %+v, %v", e, err)
	}
	up := verbstest.PortDown(t, 0)
	if e := r.event(verbs.EventPortErr); e.Port != 1 {
		t.Errorf("%+v", e)
	}
	if p, err := r.ctx.Port(1); err != nil || p.State != verbs.PortDown {
		t.Errorf("%+v, %v", p, err)
	}
	up()
	if e := r.event(verbs.EventPortActive); e.Port != 1 {
		t.Errorf("%+v", e)
	}
	if p, err := r.ctx.Port(1); err != nil || p.State != verbs.PortActive {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestGIDEvents: a GID that goes is missed and reported. In a guest an address comes and goes
// instead.
func TestGIDEvents(t *testing.T) {
	r := newRig(t)
	if verbstest.Real() {
		if os.Getenv("RDMA_VM") == "" {
			t.Skip("addresses come and go in a guest only")
		}
		for _, act := range []string{"add", "del"} {
			if out, err := exec.Command("ip", "addr", act, "198.18.250.9/32", "dev", r.gid.NetDev).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if e := r.event(verbs.EventGIDChange); e.Port != 1 {
				t.Errorf("%+v", e)
			}
		}
		return
	}
	before, err := r.ctx.GIDs(1)
	r.ok(err)
	verbstest.DropGID(t, 0, before[0].Index)
	if e := r.event(verbs.EventGIDChange); e.Port != 1 {
		t.Errorf("%+v", e)
	}
	after, err := r.ctx.GIDs(1)
	r.ok(err)
	if len(after) != len(before)-1 || after[0] != before[1] {
		t.Errorf("%+v are left of %+v", after, before)
	}
}

// TestDeviceGone: it is reported, and calls fail and do not crash.
func TestDeviceGone(t *testing.T) {
	verbstest.NeedEmulated(t)
	r := newRig(t)
	a, _ := r.pair(common)
	m := r.region(4096, all)
	verbstest.Remove(t, 0)
	r.event(verbs.EventDeviceFatal)
	if _, err := r.ctx.Port(1); !errors.Is(err, syscall.EIO) {
		t.Errorf("its port: %v", err)
	}
	if _, _, err := r.pd.RegMR(m.addr, 4096, m.addr, all); !errors.Is(err, syscall.EIO) {
		t.Errorf("a registration: %v", err)
	}
	n, err := a.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Count: 1}}, []verbs.SGE{m.sge(0, 8)})
	if n == 0 && !errors.Is(err, syscall.EIO) {
		t.Errorf("%d were taken: %v", n, err)
	}
}

// TestEventsOfObjects: the peer of a wrong key hears of its queue pair, and who lets a queue run
// over of the queue.
func TestEventsOfObjects(t *testing.T) {
	verbstest.NeedEmulated(t)
	r := newRig(t)
	a, b := r.pair(common)
	m := r.region(4096, all)
	a.posts(verbs.SendWR{Op: verbs.OpWrite, RemoteAddr: m.addr, RKey: m.Remote ^ 0x5a5a00}, m.sge(0, 8))
	r.wait(a.send, 1)
	if e := r.event(verbs.EventQPAccessErr); e.QPNum != b.num || e.CQ != 0 {
		t.Errorf("%+v, want queue pair %d", e, b.num)
	}
	in := common
	in.SendCQ = r.cq(1, 0, 0)
	c, _ := r.pair(in)
	for range 100 {
		c.posts(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: m.addr, RKey: m.Remote}, m.sge(64, 8))
	}
	if e := r.event(verbs.EventCQErr); e.CQ != in.SendCQ || e.QPNum != 0 {
		t.Errorf("%+v, want completion queue %#x", e, in.SendCQ)
	}
}

// TestCallsThatFail: each error has the act, what it was of, and the errno.
func TestCallsThatFail(t *testing.T) {
	verbstest.NeedEmulated(t)
	r := newRig(t)
	a, b := r.end(common), r.end(common)
	a.connect(b)
	b.connect(a)
	_, addr := memory(t, 4096)
	in := common
	in.SendCQ, in.RecvCQ = a.send, a.recv
	wcs := make([]verbs.WC, 4)
	for _, c := range []struct {
		call, want string
		act        func() error
	}{
		{"ibv_open_device=13", `open device "` + r.name + `": permission denied`, func() error { _, err := verbs.Open(r.name); return err }},
		{"ibv_query_port=5", "query port 1 of " + r.name + ": input/output error", func() error { _, err := r.ctx.Port(1); return err }},
		{"ibv_query_device=5", "query device " + r.name + ": input/output error", func() error { _, err := r.ctx.Query(); return err }},
		{"ibv_alloc_pd=12", "allocate a protection domain of " + r.name + ": cannot allocate memory", func() error { _, err := r.ctx.AllocPD(); return err }},
		{"ibv_reg_mr=12", "register 4096 bytes at ", func() error { _, _, err := r.pd.RegMR(addr, 4096, addr, all); return err }},
		{"ibv_create_comp_channel=24", "create a completion channel of " + r.name + ": too many open files", func() error { _, err := r.ctx.NewChannel(); return err }},
		{"ibv_create_cq=22", "create a completion queue of 5 entries on " + r.name + ": invalid argument", func() error { _, err := r.ctx.NewCQ(5, 0, 0); return err }},
		{"ibv_create_qp=12", "create a queue pair of 128 sends and 128 receives, of 2 and 2 SGEs, 32 bytes inline: cannot allocate memory", func() error { _, _, _, err := r.pd.NewQP(in); return err }},
		{"ibv_modify_qp=110", "set queue pair ", a.Fail},
		{"ibv_poll_cq=5", "poll a completion queue: input/output error", func() error { _, err := a.send.Poll(wcs); return err }},
		{"ibv_post_send=12", "cannot allocate memory", func() error { _, err := a.PostSend(make([]verbs.SendWR, 3), nil); return err }},
	} {
		t.Run(c.call, func(t *testing.T) {
			verbstest.Fail(t, c.call)
			err := c.act()
			var errno syscall.Errno
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || !errors.As(err, &errno) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}
