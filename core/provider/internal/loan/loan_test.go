// SPDX-License-Identifier: MIT

package loan

import (
	"errors"
	"sync"
	"testing"
	"time"

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
	e.borrower.Send, e.lender.Send, e.lender.Describe, e.lender.Table = send, send, describe, util.NewMRTable()
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
