// SPDX-License-Identifier: MIT

package verbs_test

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

// patience is for a device that answers slowly, as one that a CPU emulates does.
const patience = 60 * time.Second

// A rig is a device with a port that is up, and memory of it.
type rig struct {
	testing.TB
	name  string
	ctx   verbs.Context
	pd    verbs.PD
	port  int
	state verbs.PortAttr
	gid   verbs.GIDEntry
}

func newRig(tb testing.TB) *rig {
	tb.Helper()
	verbstest.Need(tb)
	devices, err := verbs.Devices()
	if err != nil || len(devices) == 0 {
		tb.Fatal("no device: ", err)
	}
	r := &rig{TB: tb, name: devices[0].Name, port: 1}
	if !verbstest.Real() {
		r.Cleanup(func() { // after all others
			if n := verbstest.Objects(tb); n != 0 {
				tb.Errorf("%d objects are left open", n)
			}
		})
	}
	r.ctx, err = verbs.Open(r.name)
	r.ok(err)
	r.closes(r.ctx)
	r.state, err = r.ctx.Port(r.port)
	r.ok(err)
	gids, err := r.ctx.GIDs(r.port)
	r.ok(err)
	for _, g := range gids {
		if r.gid.GID == [16]byte{} || g.Type == verbs.GIDRoCEv2 && r.gid.Type != verbs.GIDRoCEv2 {
			r.gid = g
		}
	}
	r.pd, err = r.ctx.AllocPD()
	r.ok(err)
	r.closes(r.pd)
	return r
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// closes closes at the end: the last first, so that EBUSY shows what was left open.
func (r *rig) closes(c interface{ Close() error }) {
	r.Cleanup(func() {
		if err := c.Close(); err != nil {
			r.Error(err)
		}
	})
}

// all are the rights of most tests.
const all = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// A region is registered memory.
type region struct {
	bytes []byte
	addr  uint64
	verbs.Keys
}

func (r *rig) region(n int, access verbs.Access) *region {
	r.Helper()
	b, addr := memory(r, n)
	mr, keys, err := r.pd.RegMR(addr, uint64(n), addr, access)
	r.ok(err)
	r.closes(mr)
	return &region{b, addr, keys}
}

// sge is n bytes of it from off on.
func (m *region) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: m.addr + uint64(off), Len: uint32(n), LKey: m.Local}
}

func (r *rig) cq(entries int, h verbs.Channel, token uint64) verbs.CQ {
	r.Helper()
	q, err := r.ctx.NewCQ(entries, h, token)
	r.ok(err)
	r.closes(q)
	return q
}

// An end is a queue pair with a queue for its sends, and one for its receives.
type end struct {
	*rig
	verbs.QP
	num        uint32
	got        verbs.QPInit
	send, recv verbs.CQ
}

func (r *rig) end(in verbs.QPInit) *end {
	r.Helper()
	if in.SendCQ == 0 {
		in.SendCQ = r.cq(256, 0, 0)
	}
	if in.RecvCQ == 0 {
		in.RecvCQ = r.cq(256, 0, 0)
	}
	qp, num, got, err := r.pd.NewQP(in)
	r.ok(err)
	r.closes(qp)
	return &end{r, qp, num, got, in.SendCQ, in.RecvCQ}
}

// connect lets e reach peer.
func (e *end) connect(peer *end) {
	e.Helper()
	e.ok(e.Init(e.port, all))
	e.ok(e.RTR(verbs.RTR{
		MTU: e.state.MTU, DestQP: peer.num, PSN: peer.num & 0xffffff, Port: e.port, GIDIndex: e.gid.Index, GID: peer.gid.GID, LID: peer.state.LID,
		Global: e.state.LinkLayer == verbs.LinkEthernet, HopLimit: 64, MaxDestRdAtomic: 4, MinRNRTimer: 12,
	}))
	e.ok(e.RTS(verbs.RTS{PSN: e.num & 0xffffff, Timeout: 18, Retries: 7, RNRRetries: 7, MaxRdAtomic: 4}))
}

// common is what the queue pairs of most tests have.
var common = verbs.QPInit{SendWR: 128, RecvWR: 128, SendSGE: 2, RecvSGE: 2, Inline: 32}

// pair are two connected queue pairs of the device.
func (r *rig) pair(in verbs.QPInit) (a, b *end) {
	r.Helper()
	a, b = r.end(in), r.end(in)
	a.connect(b)
	b.connect(a)
	return a, b
}

// posts posts one work request and wants it taken.
func (e *end) posts(wr verbs.SendWR, sges ...verbs.SGE) {
	e.Helper()
	wr.Count = uint32(len(sges))
	if n, err := e.PostSend([]verbs.SendWR{wr}, sges); n != 1 || err != nil {
		e.Fatalf("%d were taken: %v", n, err)
	}
}

func (e *end) receives(id uint64, sges ...verbs.SGE) {
	e.Helper()
	if n, err := e.PostRecv([]verbs.RecvWR{{ID: id, Count: uint32(len(sges))}}, sges); n != 1 || err != nil {
		e.Fatalf("%d were taken: %v", n, err)
	}
}

// wait reads n completions of a queue.
func (r *rig) wait(q verbs.CQ, n int) []verbs.WC {
	r.Helper()
	wcs := make([]verbs.WC, 0, n)
	for deadline := time.Now().Add(patience); len(wcs) < n; {
		got, err := q.Poll(wcs[len(wcs):n])
		r.ok(err)
		wcs = wcs[:len(wcs)+got]
		if got == 0 && time.Now().After(deadline) {
			r.Fatalf("%d of %d completions came in %v", len(wcs), n, patience)
		}
		runtime.Gosched()
	}
	return wcs
}

// done waits for one completion, of a success.
func (r *rig) done(q verbs.CQ, id uint64, op uint8) verbs.WC {
	r.Helper()
	wc := r.wait(q, 1)[0]
	if wc.ID != id || wc.Status != verbs.StatusSuccess || wc.Op != op {
		r.Fatalf("%+v, want ID %d of op %d", wc, id, op)
	}
	return wc
}

// none wants that a queue has nothing.
func (r *rig) none(q verbs.CQ) {
	r.Helper()
	var wcs [4]verbs.WC
	if n, err := q.Poll(wcs[:]); n != 0 || err != nil {
		r.Errorf("%+v, %v", wcs[:n], err)
	}
}

// eventually calls f until it no longer answers EAGAIN.
func (r *rig) eventually(f func() error) {
	r.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(deadline) {
			r.Fatal(err)
		}
	}
}
