// SPDX-License-Identifier: MIT

package loan

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/local"
)

func ok(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

type frame struct {
	kind uint8
	body []byte
}

// ends are a borrower and a lender, with a wire between them that carries what deliver is told to.
type ends struct {
	borrower Borrower[string]
	lender   Lender
	mr       *util.MR
	key      fabric.RegionKey

	mu    sync.Mutex
	wire  []frame
	ready chan struct{}
}

func newEnds(t *testing.T, describe func(*util.MR) ([]byte, error)) *ends {
	t.Helper()
	e := &ends{ready: make(chan struct{}, 64), key: fabric.RegionKey{ID: 7, Secret: [16]byte{1, 2, 3}}}
	send := func(kind uint8, body []byte) {
		e.mu.Lock()
		e.wire = append(e.wire, frame{kind, body})
		e.mu.Unlock()
		e.ready <- struct{}{}
	}
	e.borrower.Parse = func(b []byte) (string, error) { return string(b), nil }
	out := &Sender{Send: send}
	e.borrower.Out, e.lender.Out, e.lender.Describe, e.lender.Table = out, out, describe, util.NewMRTable()
	e.lender.Table.OnRevoke(func(id uint64) {
		local.AwaitReturns([]local.Recall{{From: nil, Loans: e.lender.Revoke(id)}}, time.Minute)
	})
	mr, err := e.lender.Table.Register(fabric.Buffer{Addr: 0x1000, Len: 10}, fabric.AccessRemoteRead, e.key)
	ok(t, err)
	e.mr = mr
	return e
}

func somewhere(*util.MR) ([]byte, error) { return []byte("here"), nil }

// deliver carries the next frame, waiting for it.
func (e *ends) deliver(t *testing.T) uint8 {
	t.Helper()
	select {
	case <-e.ready:
	case <-time.After(30 * time.Second):
		t.Fatal("no frame came")
	}
	e.mu.Lock()
	f := e.wire[0]
	e.wire = e.wire[1:]
	e.mu.Unlock()
	ok(t, e.take(f))
	return f.kind
}

func (e *ends) take(f frame) error {
	switch f.kind {
	case FrameAsk:
		return e.lender.OnAsk(f.body)
	case FrameLend:
		return e.borrower.OnLend(f.body)
	case FrameRefuse:
		return e.borrower.OnRefuse(f.body)
	case FrameRevoke:
		return e.borrower.OnRevoke(f.body)
	case FrameReturn:
		return e.lender.OnReturn(f.body)
	}
	return errors.New("no such frame")
}

// borrow is a granted loan.
func (e *ends) borrow(t *testing.T) *Loan[string] {
	t.Helper()
	l := e.borrower.Find(e.key)
	e.deliver(t)
	if kind := e.deliver(t); kind != FrameLend || !l.Granted() || l.Place != "here" {
		t.Fatalf("frame %d, loan %+v", kind, l)
	}
	return l
}

func TestARegionIsLentOnceAndCalledIn(t *testing.T) {
	e := newEnds(t, somewhere)
	l := e.borrow(t)
	if e.borrower.Find(e.key) != l || len(e.wire) != 0 {
		t.Error("asked twice")
	}
	if !l.Use.Enter() {
		t.Fatal("a granted loan cannot be used")
	}
	closed := make(chan error)
	go func() { closed <- e.mr.Close() }()
	if kind := e.deliver(t); kind != FrameRevoke {
		t.Fatalf("frame %d", kind)
	}
	if l.Use.Enter() {
		t.Error("a loan that was called in is used")
	}
	select {
	case err := <-closed:
		t.Fatalf("closed (%v) under an access", err)
	case <-time.After(10 * time.Millisecond):
	}
	l.Use.Leave()
	if kind := e.deliver(t); kind != FrameReturn {
		t.Fatalf("frame %d", kind)
	}
	ok(t, <-closed)
	if again := e.borrower.Find(e.key); again == l {
		t.Error("a loan that is gone is found")
	}
}

func TestWrongKeysAreRefused(t *testing.T) {
	e := newEnds(t, somewhere)
	l := e.borrower.Find(fabric.RegionKey{ID: 7, Secret: [16]byte{9}})
	e.deliver(t)
	e.deliver(t)
	if l.Granted() || l.Refused != fabric.ErrNoKey {
		t.Errorf("refused by %v", l.Refused)
	}
}

// A region that closes while it is described is not lent.
func TestARegionThatIsClosedMeanwhileIsRefused(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	e := newEnds(t, func(*util.MR) ([]byte, error) {
		close(begun)
		<-goOn
		return []byte("here"), nil
	})
	l := e.borrower.Find(e.key)
	e.deliver(t)
	<-begun
	closed := make(chan error)
	go func() { closed <- e.mr.Close() }()
	for again, err := e.lender.Table.Acquire(e.key, 0); err == nil; again, err = e.lender.Table.Acquire(e.key, 0) {
		again.Release()
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	if kind := e.deliver(t); kind != FrameRefuse || l.Refused != fabric.ErrNoKey {
		t.Errorf("frame %d, refused by %v", kind, l.Refused)
	}
	ok(t, <-closed)
}

func TestFramesOutOfTurn(t *testing.T) {
	e := newEnds(t, somewhere)
	e.borrow(t)
	for name, f := range map[string]frame{
		"lent twice":            {FrameLend, encodeLend(1, []byte("there"))},
		"never asked for":       {FrameLend, encodeLend(5, nil)},
		"refused after all":     {FrameRefuse, encodeRefuse(1, fabric.ErrNoKey)},
		"revoked what is not":   {FrameRevoke, encodeTicket(5)},
		"returned unasked":      {FrameReturn, encodeTicket(1)},
		"asked twice":           {FrameAsk, encodeAsk(1, e.key)},
		"refused for no reason": {FrameRefuse, encodeRefuse(1, 0)},
		"ask cut off":           {FrameAsk, encodeAsk(9, e.key)[:20]},
		"lend cut off":          {FrameLend, []byte{1}},
		"ticket cut off":        {FrameRevoke, []byte{1}},
	} {
		if err := e.take(f); !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAfterTheEnd(t *testing.T) {
	e := newEnds(t, somewhere)
	e.borrow(t)
	e.borrower.Stop()
	e.lender.Stop()
	if e.borrower.Find(e.key) != nil {
		t.Error("a stopped borrower borrows")
	}
	for _, f := range []frame{{FrameLend, encodeLend(5, nil)}, {FrameRevoke, encodeTicket(1)}, {FrameReturn, encodeTicket(1)}, {FrameAsk, encodeAsk(9, e.key)}} {
		ok(t, e.take(f))
	}
	ok(t, e.mr.Close()) // nobody has it
}

// What cannot be lent is asked for once; who waits for an answer hears of it.
func TestRefusalsAreRemembered(t *testing.T) {
	e := newEnds(t, func(*util.MR) ([]byte, error) { return nil, fabric.ErrNotSupported })
	var told []fabric.Errno
	e.borrower.Refusals = 2
	e.borrower.Answer = func(l *Loan[string]) { told = append(told, l.Refused) }
	l := e.borrower.Find(e.key)
	e.deliver(t)
	e.deliver(t)
	if again := e.borrower.Find(e.key); again != l || l.Refused != fabric.ErrNotSupported || len(e.wire) != 0 {
		t.Errorf("found %p, was %p, refused by %v", again, l, l.Refused)
	}
	for id := range uint64(2) { // the first of these is remembered, the second one has all before it forgotten
		key := fabric.RegionKey{ID: 100 + id}
		mr, err := e.lender.Table.Register(fabric.Buffer{Addr: 0x1000, Len: 10}, fabric.AccessRemoteRead, key)
		ok(t, err)
		defer mr.Close()
		e.borrower.Find(key)
		e.deliver(t)
		e.deliver(t)
	}
	if again := e.borrower.Find(e.key); again == l {
		t.Error("more refusals are remembered than there may be")
	}
	if len(told) != 3 {
		t.Errorf("told of %v", told)
	}
}

// A share is reached until its region closes, whose users are waited for.
func TestShares(t *testing.T) {
	e := newEnds(t, somewhere)
	e.borrower.Shares = true
	over := make(chan string, 1)
	e.borrower.Over = func(l *Loan[string]) { over <- l.Place }
	e.lender.Table.TakeDevice()
	mr, err := e.lender.Table.Register(fabric.Buffer{Addr: 0x2000, Len: 10, Kind: fabric.MemCUDA}, fabric.AccessRemoteRead, fabric.RegionKey{ID: 8})
	ok(t, err)
	s, err := e.lender.Share(mr, []byte("there"))
	ok(t, err)
	if again, err := e.lender.Share(mr, nil); again != s || err != nil || e.lender.Shared(mr.Desc()) != s {
		t.Errorf("shared twice, %v", err)
	}
	if kind := e.deliver(t); kind != FrameLend {
		t.Fatalf("frame %d", kind)
	}
	l := e.borrower.Share(s.Ticket)
	if l == nil || !l.Granted() || l.Place != "there" || e.borrower.Share(s.Ticket&^ShareBit) != nil || !l.Use.Enter() {
		t.Fatalf("the share is %+v", l)
	}
	for name, f := range map[string]frame{
		"lent twice":              {FrameLend, encodeLend(s.Ticket, nil)},
		"asked by a share's name": {FrameAsk, encodeAsk(ShareBit|9, e.key)},
	} {
		if err := e.take(f); !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	closed := make(chan error)
	go func() { closed <- mr.Close() }()
	e.deliver(t)
	l.Use.Leave()
	if place := <-over; place != "there" {
		t.Errorf("over is %q", place)
	}
	e.deliver(t)
	ok(t, <-closed)
	e.borrower.Wait()
	if e.lender.Shared(mr.Desc()) != nil || e.borrower.Share(s.Ticket) != nil {
		t.Error("a share outlives its region")
	}
	if _, err := e.lender.Share(mr, nil); !errors.Is(err, fabric.ErrNotSupported) {
		t.Errorf("a closed region is shared: %v", err)
	}
	e.borrower.Shares = false
	if err := e.take(frame{FrameLend, encodeLend(ShareBit|20, nil)}); !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("lent unasked: %v", err)
	}
}

// What is given up does not go back, and is not waited for.
func TestLoansThatAreGivenUp(t *testing.T) {
	e := newEnds(t, somewhere)
	gaveUp := make(chan struct{})
	e.borrower.GaveUp = gaveUp
	l := e.borrow(t)
	if !l.Use.Enter() {
		t.Fatal("shut")
	}
	ok(t, e.take(frame{FrameRevoke, encodeTicket(l.ticket)}))
	if left := e.borrower.Stop(); len(left) != 0 {
		t.Errorf("%d loans left, and the only one was called in", len(left))
	}
	close(gaveUp)
	e.borrower.Wait()
	if len(e.wire) != 0 {
		t.Errorf("%d frames sent", len(e.wire))
	}
}

// To send a frame may begin an op, which posts the next one, on the same goroutine.
func TestSendersAreEnteredAgain(t *testing.T) {
	var s Sender
	var sent []uint8
	s.Send = func(kind uint8, _ []byte) {
		if sent = append(sent, kind); kind < 3 {
			s.Post(kind+1, nil)
			s.Flush()
		}
	}
	s.Post(1, nil)
	s.Flush()
	if len(sent) != 3 || sent[2] != 3 {
		t.Errorf("sent %v", sent)
	}
}

func TestAwait(t *testing.T) {
	e := newEnds(t, somewhere)
	l, stopped := e.borrower.Find(e.key), make(chan struct{})
	if l.Await(false, stopped) {
		t.Error("answered at once")
	}
	close(stopped)
	if l.Await(true, stopped) {
		t.Error("answered although nobody did")
	}
	e.deliver(t)
	e.deliver(t)
	if !l.Await(true, nil) || !l.Await(false, nil) {
		t.Error("not answered")
	}
}

func TestCheck(t *testing.T) {
	const both = fabric.AccessRemoteRead | fabric.AccessRemoteWrite
	for name, c := range map[string]struct {
		op     fabric.Op
		access fabric.Access
		want   error
	}{
		"all of it":        {fabric.Op{Kind: fabric.OpRead, RSeg: fabric.RSeg{Len: 10}, RMore: []fabric.RSeg{{Addr: 10}}}, both, nil},
		"no right":         {fabric.Op{Kind: fabric.OpWrite, RSeg: fabric.RSeg{Len: 10}}, fabric.AccessRemoteRead, fabric.ErrAccess},
		"a byte beyond":    {fabric.Op{Kind: fabric.OpWrite, RSeg: fabric.RSeg{Addr: 1, Len: 10}}, both, fabric.ErrRange},
		"a second segment": {fabric.Op{Kind: fabric.OpWrite, RSeg: fabric.RSeg{Len: 10}, RMore: []fabric.RSeg{{Addr: 1<<64 - 1, Len: 2}}}, both, fabric.ErrRange},
	} {
		if err := Check(&c.op, 7, c.access, 10); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Frames come from outside: what is accepted says the same when it is sent on.
func FuzzFrames(f *testing.F) {
	key := fabric.RegionKey{ID: 7, Secret: [16]byte{1, 2, 3}}
	f.Add(FrameAsk, encodeAsk(4, key))
	f.Add(FrameLend, encodeLend(ShareBit|3, []byte("there")))
	f.Add(FrameRefuse, encodeRefuse(5, fabric.ErrNoKey))
	f.Add(FrameReturn, encodeTicket(9))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		var again []byte
		var ticket uint64
		var err error
		switch kind {
		case FrameAsk:
			var k fabric.RegionKey
			decodetest.Bounded(t, len(b), func() { ticket, k, err = parseAsk(b) })
			again = encodeAsk(ticket, k)
		case FrameLend:
			var place []byte
			decodetest.Bounded(t, len(b), func() { ticket, place, err = parseLend(b) })
			again = encodeLend(ticket, place)
		case FrameRefuse:
			var why fabric.Errno
			decodetest.Bounded(t, len(b), func() { ticket, why, err = parseRefuse(b) })
			again = encodeRefuse(ticket, why)
		default:
			decodetest.Bounded(t, len(b), func() { ticket, err = parseTicket("some", b) })
			again = encodeTicket(ticket)
		}
		if err == nil && !bytes.Equal(again, b) {
			t.Errorf("kind %d: %x was taken for %x", kind, b, again)
		}
		e := newEnds(t, somewhere) // and no frame is more than an error
		decodetest.Bounded(t, len(b), func() { _ = e.take(frame{kind, b}) })
		e.borrower.Stop()
		e.lender.Stop()
	})
}
