// SPDX-License-Identifier: MIT

package rdm

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
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
func (c *fakeCarrier) Carry(*receive.Queue, func() fabric.AVAddr)           {}
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

// A fakeRequest is somebody who asks by name.
type fakeRequest struct {
	handshake []byte
	reason    chan string
}

func (q *fakeRequest) Peer() fabric.Addr { return "somewhere" }
func (q *fakeRequest) Private() []byte   { return q.handshake }
func (q *fakeRequest) Reject(why []byte) error {
	q.reason <- string(why)
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
