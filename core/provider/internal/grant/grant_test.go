// SPDX-License-Identifier: MIT

package grant

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
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

// ends are a holder and a granter. deliver carries the frames between them.
type ends struct {
	holder  Holder[string]
	granter Granter
	mr      *regions.MR
	key     fabric.RegionKey

	mu    sync.Mutex
	wire  []frame
	ready chan struct{}
}

func newEnds(t *testing.T, describe func(*regions.MR) ([]byte, error)) *ends {
	t.Helper()
	e := &ends{ready: make(chan struct{}, 64), key: fabric.RegionKey{ID: 7, Secret: [16]byte{1, 2, 3}}}
	send := func(kind uint8, body []byte) {
		e.mu.Lock()
		e.wire = append(e.wire, frame{kind, body})
		e.mu.Unlock()
		e.ready <- struct{}{}
	}
	e.holder.Parse = func(b []byte) (string, error) { return string(b), nil }
	out := &Sender{Send: send}
	e.holder.Out, e.granter.Out, e.granter.Describe, e.granter.Table = out, out, describe, regions.NewTable()
	e.granter.Table.OnRevoke(func(id uint64) {
		AwaitReturns([]Revocation{{From: nil, Grants: e.granter.Revoke(id)}}, time.Minute)
	})
	mr, err := e.granter.Table.Register(fabric.Buffer{Addr: 0x1000, Len: 10}, fabric.AccessRemoteRead, e.key)
	ok(t, err)
	e.mr = mr
	return e
}

func somewhere(*regions.MR) ([]byte, error) { return []byte("here"), nil }

// deliver waits for the next frame and delivers it.
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
	case FrameRequest:
		return e.granter.OnRequest(f.body)
	case FrameGrant:
		return e.holder.OnGrant(f.body)
	case FrameRefuse:
		return e.holder.OnRefuse(f.body)
	case FrameRevoke:
		return e.holder.OnRevoke(f.body)
	case FrameReturn:
		return e.granter.OnReturn(f.body)
	}
	return errors.New("no such frame")
}

// hold returns a grant.
func (e *ends) hold(t *testing.T) *Grant[string] {
	t.Helper()
	l := e.holder.Find(e.key)
	e.deliver(t)
	if kind := e.deliver(t); kind != FrameGrant || !l.Granted() || l.Region != "here" {
		t.Fatalf("frame %d, grant %+v", kind, l)
	}
	return l
}

func TestARegionIsGrantedOnceAndRevoked(t *testing.T) {
	e := newEnds(t, somewhere)
	l := e.hold(t)
	if e.holder.Find(e.key) != l || len(e.wire) != 0 {
		t.Error("requested twice")
	}
	if !l.Use.Enter() {
		t.Fatal("a grant cannot be used")
	}
	closed := make(chan error)
	go func() { closed <- e.mr.Close() }()
	if kind := e.deliver(t); kind != FrameRevoke {
		t.Fatalf("frame %d", kind)
	}
	if l.Use.Enter() {
		t.Error("a revoked grant is used")
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
	if again := e.holder.Find(e.key); again == l {
		t.Error("a returned grant is found")
	}
}

func TestWrongKeysAreRefused(t *testing.T) {
	e := newEnds(t, somewhere)
	l := e.holder.Find(fabric.RegionKey{ID: 7, Secret: [16]byte{9}})
	e.deliver(t)
	e.deliver(t)
	if l.Granted() || l.Refused != fabric.ErrNoKey {
		t.Errorf("refused by %v", l.Refused)
	}
}

// A region that closes while Describe runs is not granted.
func TestARegionThatIsClosedMeanwhileIsRefused(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	e := newEnds(t, func(*regions.MR) ([]byte, error) {
		close(begun)
		<-goOn
		return []byte("here"), nil
	})
	l := e.holder.Find(e.key)
	e.deliver(t)
	<-begun
	closed := make(chan error)
	go func() { closed <- e.mr.Close() }()
	for again, err := e.granter.Table.Acquire(e.key, 0); err == nil; again, err = e.granter.Table.Acquire(e.key, 0) {
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
	e.hold(t)
	for name, f := range map[string]frame{
		"granted twice":         {FrameGrant, encodeGrant(1, []byte("there"))},
		"never requested":       {FrameGrant, encodeGrant(5, nil)},
		"refused after all":     {FrameRefuse, encodeRefuse(1, fabric.ErrNoKey)},
		"revoked what is not":   {FrameRevoke, encodeTicket(5)},
		"returned unrevoked":    {FrameReturn, encodeTicket(1)},
		"requested twice":       {FrameRequest, encodeRequest(1, e.key)},
		"refused for no reason": {FrameRefuse, encodeRefuse(1, 0)},
		"ask cut off":           {FrameRequest, encodeRequest(9, e.key)[:20]},
		"grant cut off":         {FrameGrant, []byte{1}},
		"ticket cut off":        {FrameRevoke, []byte{1}},
	} {
		if err := e.take(f); !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAfterTheEnd(t *testing.T) {
	e := newEnds(t, somewhere)
	e.hold(t)
	e.holder.Stop()
	e.granter.Stop()
	if e.holder.Find(e.key) != nil {
		t.Error("a stopped holder finds a grant")
	}
	for _, f := range []frame{{FrameGrant, encodeGrant(5, nil)}, {FrameRevoke, encodeTicket(1)}, {FrameReturn, encodeTicket(1)}, {FrameRequest, encodeRequest(9, e.key)}} {
		ok(t, e.take(f))
	}
	ok(t, e.mr.Close()) // no peer holds a grant of it
}

// A region that cannot be granted is requested once. Answer is called for it.
func TestRefusalsAreRemembered(t *testing.T) {
	e := newEnds(t, func(*regions.MR) ([]byte, error) { return nil, fabric.ErrNotSupported })
	var answers []fabric.Errno
	e.holder.Refusals = 2
	e.holder.Answer = func(l *Grant[string]) { answers = append(answers, l.Refused) }
	l := e.holder.Find(e.key)
	e.deliver(t)
	e.deliver(t)
	if again := e.holder.Find(e.key); again != l || l.Refused != fabric.ErrNotSupported || len(e.wire) != 0 {
		t.Errorf("found %p, was %p, refused by %v", again, l, l.Refused)
	}
	for id := range uint64(2) { // the first one is remembered; the second one makes the holder forget all
		key := fabric.RegionKey{ID: 100 + id}
		mr, err := e.granter.Table.Register(fabric.Buffer{Addr: 0x1000, Len: 10}, fabric.AccessRemoteRead, key)
		ok(t, err)
		defer mr.Close()
		e.holder.Find(key)
		e.deliver(t)
		e.deliver(t)
	}
	if again := e.holder.Find(e.key); again == l {
		t.Error("more refusals are remembered than there may be")
	}
	if len(answers) != 3 {
		t.Errorf("answers %v", answers)
	}
}

// A share can be accessed until its region closes. Close waits for its users.
func TestShares(t *testing.T) {
	e := newEnds(t, somewhere)
	e.holder.Shares = true
	over := make(chan string, 1)
	e.holder.Over = func(l *Grant[string]) { over <- l.Region }
	e.granter.Table.TakeDevice()
	mr, err := e.granter.Table.Register(fabric.Buffer{Addr: 0x2000, Len: 10, Kind: fabric.MemCUDA}, fabric.AccessRemoteRead, fabric.RegionKey{ID: 8})
	ok(t, err)
	s, err := e.granter.Share(mr, []byte("there"))
	ok(t, err)
	if again, err := e.granter.Share(mr, nil); again != s || err != nil || e.granter.Shared(mr.Desc()) != s {
		t.Errorf("shared twice, %v", err)
	}
	if kind := e.deliver(t); kind != FrameGrant {
		t.Fatalf("frame %d", kind)
	}
	l := e.holder.Share(s.Ticket)
	if l == nil || !l.Granted() || l.Region != "there" || e.holder.Share(s.Ticket&^ShareBit) != nil || !l.Use.Enter() {
		t.Fatalf("the share is %+v", l)
	}
	for name, f := range map[string]frame{
		"granted twice":        {FrameGrant, encodeGrant(s.Ticket, nil)},
		"requested as a share": {FrameRequest, encodeRequest(ShareBit|9, e.key)},
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
	e.holder.Wait()
	if e.granter.Shared(mr.Desc()) != nil || e.holder.Share(s.Ticket) != nil {
		t.Error("a share outlives its region")
	}
	if _, err := e.granter.Share(mr, nil); !errors.Is(err, fabric.ErrNotSupported) {
		t.Errorf("a closed region is shared: %v", err)
	}
	e.holder.Shares = false
	if err := e.take(frame{FrameGrant, encodeGrant(ShareBit|20, nil)}); !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("granted without a request: %v", err)
	}
}

// A grant that is given up is not returned, and Wait does not wait for it.
func TestGrantsThatAreGivenUp(t *testing.T) {
	e := newEnds(t, somewhere)
	gaveUp := make(chan struct{})
	e.holder.GaveUp = gaveUp
	l := e.hold(t)
	if !l.Use.Enter() {
		t.Fatal("shut")
	}
	ok(t, e.take(frame{FrameRevoke, encodeTicket(l.ticket)}))
	if left := e.holder.Stop(); len(left) != 0 {
		t.Errorf("%d grants left, and the only one was revoked", len(left))
	}
	close(gaveUp)
	e.holder.Wait()
	if len(e.wire) != 0 {
		t.Errorf("%d frames sent", len(e.wire))
	}
}

// Sending a frame may start an op, which posts the next frame on the same goroutine.
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
	l, stopped := e.holder.Find(e.key), make(chan struct{})
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

// Frames are untrusted input. An accepted frame encodes to the same bytes again.
func FuzzFrames(f *testing.F) {
	key := fabric.RegionKey{ID: 7, Secret: [16]byte{1, 2, 3}}
	f.Add(FrameRequest, encodeRequest(4, key))
	f.Add(FrameGrant, encodeGrant(ShareBit|3, []byte("there")))
	f.Add(FrameRefuse, encodeRefuse(5, fabric.ErrNoKey))
	f.Add(FrameReturn, encodeTicket(9))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		var again []byte
		var ticket uint64
		var err error
		switch kind {
		case FrameRequest:
			var k fabric.RegionKey
			decodetest.Bounded(t, len(b), func() { ticket, k, err = parseRequest(b) })
			again = encodeRequest(ticket, k)
		case FrameGrant:
			var place []byte
			decodetest.Bounded(t, len(b), func() { ticket, place, err = parseGrant(b) })
			again = encodeGrant(ticket, place)
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
		e := newEnds(t, somewhere) // a frame causes at most an error
		decodetest.Bounded(t, len(b), func() { _ = e.take(frame{kind, b}) })
		e.holder.Stop()
		e.granter.Stop()
	})
}
