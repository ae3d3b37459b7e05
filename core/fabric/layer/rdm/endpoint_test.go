// SPDX-License-Identifier: MIT

package rdm

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

var testLimits = fabric.Limits{MaxMsg: 100, MaxPrivate: 64, TxSize: 4, RxSize: 4, SegLimit: 1, RSegLimit: 1}

// A fakeCarrier connects to nobody: the test is its network.
type fakeCarrier struct {
	Carrier
	connect func(ctx context.Context) error // nil: done at once
	bound   error                           // of BindCQ
	closed  chan struct{}

	mu    sync.Mutex
	eq    *util.EQ
	state error // of Submit
	took  []fabric.Op
	abort error
}

func newFake() *fakeCarrier { return &fakeCarrier{closed: make(chan struct{})} }

func (c *fakeCarrier) BindCQ(fabric.CQ, fabric.Dir, bool) error             { return c.bound }
func (c *fakeCarrier) BindCounter(fabric.Counter, fabric.CountEvents) error { return nil }
func (c *fakeCarrier) Enable() error                                        { return nil }
func (c *fakeCarrier) Carry(*util.RecvQueue, func() fabric.AVAddr)          {}
func (c *fakeCarrier) Accept(context.Context, fabric.ConnReq, []byte) error { return nil }
func (c *fakeCarrier) BindEQ(eq fabric.EQ) error                            { c.eq = eq.(*util.EQ); return nil }
func (c *fakeCarrier) Connect(ctx context.Context, _ fabric.Addr, _ []byte) ([]byte, error) {
	if c.connect == nil {
		return nil, nil
	}
	return nil, c.connect(ctx)
}

func (c *fakeCarrier) Abort(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abort, c.state = cause, fabric.ErrNotConn
}

func (c *fakeCarrier) Submit(ops []fabric.Op) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != nil {
		return 0, c.state
	}
	c.took = append(c.took, ops...)
	return len(ops), nil
}

// breaks ends the connection as the peer would.
func (c *fakeCarrier) breaks() {
	c.mu.Lock()
	c.state = fabric.ErrNotConn
	c.mu.Unlock()
	c.eq.Push(fabric.Event{Kind: fabric.EventShutdown, EP: c, Err: fabric.ErrConnReset})
}

func (c *fakeCarrier) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != fabric.ErrClosed {
		c.state = fabric.ErrClosed
		close(c.closed)
	}
	return nil
}

func (c *fakeCarrier) aborted() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.abort
}

func (c *fakeCarrier) ops() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.took)
}

// A fakeListener hands out what is in requests.
type fakeListener struct {
	name     fabric.Addr
	requests chan fabric.ConnReq
	closed   chan struct{}
	once     sync.Once
}

func (l *fakeListener) Addr() fabric.Addr { return l.name }
func (l *fakeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *fakeListener) Accept(ctx context.Context) (fabric.ConnReq, error) {
	select {
	case r := <-l.requests:
		return r, nil
	case <-l.closed:
		return nil, fabric.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A rig is an endpoint over fake carriers, which come from next in order.
type rig struct {
	*testing.T
	ep   *Endpoint
	l    *fakeListener
	next chan *fakeCarrier
	to   fabric.AVAddr // "b"
}

func newRig(t *testing.T, carriers ...*fakeCarrier) *rig {
	t.Helper()
	r := &rig{T: t, next: make(chan *fakeCarrier, 16), l: &fakeListener{name: "a", requests: make(chan fabric.ConnReq), closed: make(chan struct{})}}
	for _, c := range carriers {
		r.next <- c
	}
	var left int
	r.ep = New(Config{
		Carrier: func() (Carrier, error) {
			select {
			case c := <-r.next:
				return c, nil
			default:
				return nil, fabric.ErrPerm
			}
		},
		Listen:      func() (fabric.Listener, error) { return r.l, nil },
		Limits:      testLimits,
		Log:         slog.New(slog.NewTextHandler(io.Discard, nil)),
		Leave:       func() { left++ },
		DialTimeout: 20 * time.Millisecond,
	})
	cq, errCQ := util.NewCQ(16)
	av, errAV := util.NewAV(0)
	if err := errors.Join(errCQ, errAV, r.ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false), r.ep.BindAV(av), r.ep.Enable()); err != nil {
		t.Fatal(err)
	}
	to, err := av.Insert("b")
	if err != nil {
		t.Fatal(err)
	}
	r.to = to[0]
	t.Cleanup(func() {
		if err := errors.Join(r.ep.Close(), r.ep.Close(), cq.Close(), av.Close()); err != nil || left != 1 {
			t.Errorf("close: %v, left %d times", err, left)
		}
	})
	return r
}

func (r *rig) send() error {
	_, err := r.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Dest: r.to}})
	return err
}

// until waits for a condition.
func (r *rig) until(what string, is func() bool) {
	r.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			r.Fatalf("%s does not come", what)
		}
	}
}

// TestDialEnds holds that ops that wait for a connection hear why there is none.
func TestDialEnds(t *testing.T) {
	silent := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, c := range []struct {
		name    string
		connect func(context.Context) error
		want    error
		words   string
	}{
		{"nobody answers", silent, fabric.ErrTimeout, "reach b: no answer within 20ms"},
		{"refused", func(context.Context) error { return fabric.ErrConnRefused }, fabric.ErrConnRefused, "reach b: "},
		{"rejected", func(context.Context) error { return &fabric.RejectError{Peer: "b", Data: []byte("full")} }, fabric.ErrConnRefused, "full"},
	} {
		first, second := newFake(), newFake()
		first.connect = c.connect
		r := newRig(t, first, second)
		if err := r.send(); err != nil {
			t.Fatal(err)
		}
		r.until("the end of the carrier", func() bool { return isClosed(first.closed) })
		if err := first.aborted(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) || first.ops() != 1 {
			t.Errorf("%s: %d ops, %v", c.name, first.ops(), err)
		}
		if err := r.send(); err != nil || second.ops() != 1 {
			t.Errorf("%s: the next op: %v", c.name, err)
		}
	}
}

func TestCloseEndsADial(t *testing.T) {
	c := newFake()
	dialing := make(chan struct{})
	c.connect = func(ctx context.Context) error {
		close(dialing)
		<-ctx.Done()
		return ctx.Err()
	}
	r := newRig(t, c)
	r.ep.cfg.DialTimeout = time.Hour
	if err := r.send(); err != nil {
		t.Fatal(err)
	}
	<-dialing
	if err := r.ep.Close(); err != nil || !errors.Is(c.aborted(), fabric.ErrCanceled) || !isClosed(c.closed) {
		t.Errorf("%v, aborted by %v", err, c.aborted())
	}
}

// TestNextCarrierWaits holds that a new carrier connects only after the one before it has ended everything.
func TestNextCarrierWaits(t *testing.T) {
	first, second := newFake(), newFake()
	early := make(chan bool, 1)
	second.connect = func(context.Context) error {
		early <- !isClosed(first.closed)
		return nil
	}
	r := newRig(t, first, second)
	if err := r.send(); err != nil {
		t.Fatal(err)
	}
	first.breaks()
	if err := r.send(); err != nil || second.ops() != 1 {
		t.Fatalf("%v, %d ops", err, second.ops())
	}
	if <-early {
		t.Error("connected before the old carrier closed")
	}
}

// TestCarriersThatFail holds that Submit answers whatever happens to carriers.
func TestCarriersThatFail(t *testing.T) {
	var shut []*fakeCarrier
	for range maxReroutes + 1 {
		c := newFake()
		c.state = fabric.ErrNotConn
		shut = append(shut, c)
	}
	unbound := newFake()
	unbound.bound = fabric.ErrClosed
	for _, c := range []struct {
		name     string
		carriers []*fakeCarrier
		want     error
	}{
		{"none can be made", nil, fabric.ErrPerm},
		{"it cannot be bound", []*fakeCarrier{unbound}, fabric.ErrClosed},
		{"each ends at once", shut, fabric.ErrAgain},
	} {
		r := newRig(t, c.carriers...)
		if err := r.send(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if !isClosed(unbound.closed) {
		t.Error("a carrier that could not be bound is open")
	}
}

// A fakeRequest is somebody who asks by name.
type fakeRequest struct {
	hello  []byte
	reason chan string
}

func (q *fakeRequest) Peer() fabric.Addr { return "somewhere" }
func (q *fakeRequest) Private() []byte   { return q.hello }
func (q *fakeRequest) Reject(why []byte) error {
	q.reason <- string(why)
	return nil
}

// TestAcceptedCarrierIsARoute holds that ops go to a peer on the connection that it made, unless there is another.
func TestAcceptedCarrierIsARoute(t *testing.T) {
	theirs, again, ours := newFake(), newFake(), newFake()
	r := newRig(t, theirs, again, ours)
	for range 2 {
		r.l.requests <- &fakeRequest{hello: []byte(helloMark + "b")}
	}
	r.until("the second carrier", func() bool { return len(r.next) == 1 })
	r.until("a route", func() bool {
		r.ep.mu.Lock()
		defer r.ep.mu.Unlock()
		return r.ep.byName["b"] != nil
	})
	if err := errors.Join(r.send(), r.send()); err != nil {
		t.Fatal(err)
	}
	if theirs.ops()+again.ops() != 2 || theirs.ops() > 0 && again.ops() > 0 || ours.ops() > 0 {
		t.Fatalf("%d, %d and %d ops", theirs.ops(), again.ops(), ours.ops())
	}
	q := &fakeRequest{hello: []byte("good day"), reason: make(chan string, 1)}
	r.l.requests <- q
	if why := <-q.reason; !strings.Contains(why, "no hello") || len(why) > testLimits.MaxPrivate {
		t.Errorf("refused with %q", why)
	}
}

func TestRoutes(t *testing.T) {
	var r routes
	a, b := &conn{}, &conn{}
	for _, n := range []fabric.AVAddr{0, 1, 7, 1000} {
		if r.at(n) != nil {
			t.Errorf("%d goes to %p", n, r.at(n))
		}
	}
	for n := fabric.AVAddr(1); n < 100; n++ {
		r.set(n, []*conn{a, b}[n%2])
	}
	r.forget(a)
	for n := fabric.AVAddr(1); n < 100; n++ {
		if want := []*conn{nil, b}[n%2]; r.at(n) != want {
			t.Errorf("%d goes to %p, want %p", n, r.at(n), want)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
