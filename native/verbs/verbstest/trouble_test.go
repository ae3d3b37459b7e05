// SPDX-License-Identifier: MIT

package verbstest

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"time"

	"mori/native/verbs"
)

// ask is a write of 8 bytes, or what f makes of it.
func (t *tester) ask(id uint64, f func(*verbs.SendWR)) {
	t.Helper()
	wr := verbs.SendWR{ID: id, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: t.b.Addr, RKey: t.b.RKey}
	if f != nil {
		f(&wr)
	}
	t.ok(t.a.post(wr, t.a.sge(0, 8)))
}

// TestRefused: the request ends with the peer's answer, both pairs fail, everything that is posted
// is flushed in order, and the peer hears an event.
func TestRefused(t *testing.T) {
	onlyLocal := func(_, b *settings) { b.access = verbs.AccessLocalWrite }
	oneRead := func(_, b *settings) { b.destRd = 1 }
	access, request := verbs.EventQPAccessErr, verbs.EventQPReqErr
	for name, c := range map[string]struct {
		wr     func(*verbs.SendWR)
		set    func(a, b *settings)
		strict bool // more than devices are
		want   verbs.Status
		event  verbs.EventKind
	}{
		"wrong key":                {func(w *verbs.SendWR) { w.RKey += 256 }, nil, false, verbs.StatusRemAccess, access},
		"a key of another use":     {func(w *verbs.SendWR) { w.RKey = w.RKey&^0xff | 0x11 }, nil, true, verbs.StatusRemAccess, access},
		"beyond the end":           {func(w *verbs.SendWR) { w.RemoteAddr += bufBytes - 7 }, nil, false, verbs.StatusRemAccess, access},
		"before the startning":     {func(w *verbs.SendWR) { w.RemoteAddr-- }, nil, false, verbs.StatusRemAccess, access},
		"pair without rights":      {nil, onlyLocal, false, verbs.StatusRemInvReq, request},
		"atomic of an odd address": {func(w *verbs.SendWR) { w.Op = verbs.OpFetchAdd; w.RemoteAddr += 4 }, nil, true, verbs.StatusRemInvReq, request},
		"more reads than it takes": {func(w *verbs.SendWR) { w.Op = verbs.OpRead }, oneRead, true, verbs.StatusRemInvReq, request},
	} {
		t.Run(name, func(t *testing.T) {
			if c.strict {
				NeedEmulated(t)
			}
			var set []func(a, b *settings)
			if c.set != nil {
				set = append(set, c.set)
			}
			x := newTester(t, 0, 1, common, set...)
			x.ok(x.a.receive(1, x.a.sge(0, 8)))
			x.ok(x.b.receive(1, x.b.sge(0, 8)))
			x.refused(c.wr, c.want)
			if Real() { // soft-RoCE has no event for it, and leaves the peer as it is
				return
			}
			x.ends(x.b.recv, verbs.StatusFlushed)
			if e := x.event(x.b, c.event); e.QPNum != x.b.Num {
				t.Errorf("the event is of pair %d, want %d", e.QPNum, x.b.Num)
			}
			x.state(x.b, verbs.StateErr)
		})
	}
}

// refused posts what the peer refuses, and more at once, and wants all of that to fail.
func (t *tester) refused(wr func(*verbs.SendWR), want verbs.Status) {
	t.Helper()
	release := func() {}
	if !Real() {
		release = Hold(t, 0)
	}
	t.ask(1, wr)
	t.ask(2, nil)
	t.ask(3, func(w *verbs.SendWR) { w.Flags = 0 })
	release()
	t.ends(t.a.send, want, verbs.StatusFlushed, verbs.StatusFlushed)
	t.ends(t.a.recv, verbs.StatusFlushed)
	t.state(t.a, verbs.StateErr)
	t.ask(1, nil) // flushed, too
	t.ends(t.a.send, verbs.StatusFlushed)
}

// TestOwnMistakes: what is wrong here never goes out, and what was posted before it still does.
func TestOwnMistakes(t *testing.T) {
	NeedEmulated(t)
	for name, c := range map[string]struct {
		sge  func(*verbs.SGE)
		op   uint8
		set  func(a, b *settings)
		want verbs.Status
	}{
		"wrong key":           {sge: func(s *verbs.SGE) { s.LKey += 256 }, want: verbs.StatusLocProt},
		"the remote key":      {sge: func(s *verbs.SGE) { s.LKey = s.LKey&^0xff | 0x22 }, want: verbs.StatusLocProt},
		"beyond the end":      {sge: func(s *verbs.SGE) { s.Addr += bufBytes }, want: verbs.StatusLocProt},
		"reads are forbidden": {op: verbs.OpRead, set: func(a, _ *settings) { a.rd = 0 }, want: verbs.StatusLocQPOp},
	} {
		t.Run(name, func(t *testing.T) {
			if c.set == nil {
				c.set = func(_, _ *settings) {}
			}
			x := newTester(t, 0, 0, common, c.set)
			x.a.buf[0] = 9
			x.ask(1, nil)
			sge := x.a.sge(0, 8)
			if c.sge != nil {
				c.sge(&sge)
			}
			x.ok(x.a.post(verbs.SendWR{ID: 2, Op: c.op, RemoteAddr: x.b.Addr + 8, RKey: x.b.RKey}, sge))
			x.ends(x.a.send, verbs.StatusSuccess, c.want)
			if x.b.buf[0] != 9 || x.b.buf[8] != 0 {
				t.Errorf("the peer has %d and %d", x.b.buf[0], x.b.buf[8])
			}
			x.state(x.b, verbs.StateRTS)
		})
	}
}

// TestReceiverNotReady waits for a receive without end, or as often as it is set to.
func TestReceiverNotReady(t *testing.T) {
	send := func(w *verbs.SendWR) { w.Op = verbs.OpSend }
	t.Run("for ever", func(t *testing.T) {
		x := newTester(t, 0, 1, common)
		x.ask(1, send)
		x.ask(2, send)
		time.Sleep(20 * time.Millisecond)
		var wcs [1]verbs.WC
		if n, err := x.a.send.Poll(wcs[:]); n != 0 || err != nil {
			t.Errorf("%+v, %v", wcs, err)
		}
		x.ok(x.b.receive(1, x.b.sge(0, 8)))
		x.ok(x.b.receive(2, x.b.sge(0, 8)))
		x.ends(x.a.send, verbs.StatusSuccess, verbs.StatusSuccess)
		x.ends(x.b.recv, verbs.StatusSuccess, verbs.StatusSuccess)
	})
	t.Run("twice", func(t *testing.T) {
		x := newTester(t, 0, 1, common, func(a, _ *settings) { a.rnr = 2 })
		x.ask(1, send)
		x.ends(x.a.send, verbs.StatusRNRExceeded)
		x.state(x.b, verbs.StateRTS)
	})
}

// TestBadReceives: who posted it hears what was wrong, and so does the sender.
func TestBadReceives(t *testing.T) {
	for name, c := range map[string]struct {
		length     int
		key        uint32
		mine, peer verbs.Status
	}{
		"too short": {7, 0, verbs.StatusRemInvReq, verbs.StatusLocLen},
		"wrong key": {8, 256, verbs.StatusRemOp, verbs.StatusLocProt},
	} {
		t.Run(name, func(t *testing.T) {
			NeedEmulated(t) // soft-RoCE has other statuses for both
			x := newTester(t, 0, 1, common)
			sge := x.b.sge(0, c.length)
			sge.LKey += c.key
			x.ok(x.b.receive(1, sge))
			x.ask(1, func(w *verbs.SendWR) { w.Op = verbs.OpSend })
			x.ends(x.a.send, c.mine)
			x.ends(x.b.recv, c.peer)
			x.state(x.b, verbs.StateErr)
		})
	}
}

// TestNobodyAnswers: only the agreed peer, in the agreed state, gets an answer.
func TestNobodyAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		strict bool // devices answer, or refuse the connection
		f      func(x *tester)
	}{
		"closed":                {false, func(x *tester) { x.ok(x.b.qp.Close()); x.b.qp = 0 }},
		"reset":                 {false, func(x *tester) { x.ok(x.b.qp.Reset()) }},
		"in error":              {false, func(x *tester) { x.ok(x.b.qp.Fail()) }},
		"another sequence":      {false, func(x *tester) { x.again(func(s *settings) { s.psn = -1 }) }},
		"no such queue pair":    {true, func(x *tester) { x.b.Num ^= 1; x.redial() }},
		"no such GID":           {true, func(x *tester) { x.b.GID[3] = 9; x.redial() }},
		"connected to another":  {true, func(x *tester) { x.a.Num ^= 1; x.again(func(*settings) {}) }},
		"of a device elsewhere": {true, func(x *tester) { x.a.GID = x.b.GID; x.again(func(*settings) {}) }},
	} {
		t.Run(name, func(t *testing.T) {
			if c.strict {
				NeedEmulated(t)
			}
			if Real() { // which takes two seconds to give up
				t.Parallel()
			}
			x := newTester(t, 0, 1, common)
			c.f(x)
			x.ask(1, nil)
			x.ask(2, nil)
			x.ends(x.a.send, verbs.StatusRetryExceeded, verbs.StatusFlushed)
		})
	}
}

// again connects b anew.
func (t *tester) again(set func(*settings)) {
	t.Helper()
	with := usual()
	set(&with)
	t.ok(t.b.qp.Reset())
	t.ok(t.b.connect(t.a.address, with))
}

// redial connects a anew.
func (t *tester) redial() {
	t.Helper()
	t.ok(t.a.qp.Reset())
	t.ok(t.a.connect(t.b.address, usual()))
}

// TestResetAndAgain: a pair that failed works again after it was reset, on both sides.
func TestResetAndAgain(t *testing.T) {
	x := newTester(t, 0, 1, common)
	for range 3 {
		x.ask(1, func(w *verbs.SendWR) { w.RKey += 512 })
		x.ends(x.a.send, verbs.StatusRemAccess)
		x.again(func(*settings) {})
		x.redial()
		x.ask(1, nil)
		x.ends(x.a.send, verbs.StatusSuccess)
	}
}

// TestAnotherMTU shows with messages that are longer than the smaller one.
func TestAnotherMTU(t *testing.T) {
	NeedEmulated(t)
	x := newTester(t, 0, 0, common, func(a, _ *settings) { a.mtu = 512 })
	x.ask(1, nil)
	x.ends(x.a.send, verbs.StatusSuccess)
	x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: x.b.Addr, RKey: x.b.RKey}, x.a.sge(0, 513)))
	x.ends(x.a.send, verbs.StatusRemInvReq)
}

// TestLateRegistration: bytes that are written while the region goes away end with an error, and
// none comes after its end.
func TestLateRegistration(t *testing.T) {
	x := newTester(t, 0, 1, common)
	for i := range 32 {
		x.ok(x.a.post(verbs.SendWR{ID: uint64(i + 1), Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: x.b.Addr, RKey: x.b.RKey}, x.a.sge(0, bufBytes)))
	}
	n := x.b.node
	x.ok(x.b.mr.Close())
	clear(x.b.buf)
	wcs, err := poll(x.a.send, 32)
	x.ok(err)
	if last := wcs[31].Status; last != verbs.StatusFlushed && last != verbs.StatusRemAccess {
		t.Errorf("the last write ended with %v", last)
	}
	if !bytes.Equal(x.b.buf, make([]byte, bufBytes)) {
		t.Error("bytes came after the region had ended")
	}
	x.b.mr, _, err = n.pd.RegMR(x.b.Addr, bufBytes, x.b.Addr, allow) // for the end of the test
	x.ok(err)
}

// TestMemory: unmapped memory, or memory that is not writable, is not registered as such. Memory
// that is unmapped later is not reached. Emulated devices are shown pages without rights, as
// something else may soon be in place of unmapped ones.
func TestMemory(t *testing.T) {
	x := newTester(t, 0, 1, common)
	b, addr, err := pages(1 << 16)
	x.ok(err)
	x.ok(syscall.Mprotect(b[1<<15:], syscall.PROT_READ))
	if mr, _, err := x.a.pd.RegMR(addr, 1<<16, addr, allow); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("memory that may not be written was registered as %v: %v", mr, err)
	}
	mr, keys, err := x.b.pd.RegMR(addr, 1<<16, addr, verbs.AccessRemoteRead)
	x.ok(err)
	if Real() { // which reads the old pages
		x.ok(unmap(b))
	} else {
		x.ok(syscall.Mprotect(b, syscall.PROT_NONE))
		defer func() { x.ok(unmap(b)) }()
	}
	x.ask(1, func(w *verbs.SendWR) { w.Op, w.RemoteAddr, w.RKey = verbs.OpRead, addr, keys.Remote })
	if !Real() {
		x.ends(x.a.send, verbs.StatusRemAccess)
	}
	x.ok(mr.Close())
	if mr, _, err := x.a.pd.RegMR(addr, 1<<16, addr, verbs.AccessRemoteRead); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("memory that is not there was registered as %v: %v", mr, err)
	}
}

// TestOverrun: the queue's own event, and one of its pair, which fails. Of real devices only the
// first is asked: soft-RoCE loses completions in silence but for that.
func TestOverrun(t *testing.T) {
	Need(t, 2)
	x := &tester{TB: t}
	x.b = x.side(1, common)
	n, err := openNode(0)
	x.ok(err)
	t.Cleanup(func() { x.ok(n.close()) })
	x.a, err = n.newSide(common, allow, 2)
	x.ok(err)
	x.ok(x.a.connect(x.b.address, usual()))
	x.ok(x.b.connect(x.a.address, usual()))
	many := 3
	if Real() { // which may have made more places than it was asked for
		many = 16
	}
	for i := range many {
		x.ask(uint64(i+1), nil)
	}
	if e := x.event(x.a, verbs.EventCQErr); e.CQ != x.a.send {
		t.Errorf("the event is of queue %v, want %v", e.CQ, x.a.send)
	}
	if Real() {
		return
	}
	x.event(x.a, verbs.EventQPFatal)
	x.state(x.a, verbs.StateErr)
	x.ends(x.a.send, verbs.StatusSuccess, verbs.StatusSuccess)
	time.Sleep(5 * time.Millisecond)
	if got, err := x.a.send.Poll(make([]verbs.WC, 4)); got != 0 || err != nil {
		t.Errorf("a broken queue has %d more: %v", got, err)
	}
}
