// SPDX-License-Identifier: MIT

package rdm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
)

// TestDialEnds holds that ops that wait for a connection get the reason why it failed.
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
		sent := make(chan struct{})
		first.connect = func(ctx context.Context) error {
			<-sent // else the op may find that the connection has ended, and go by the next one
			return c.connect(ctx)
		}
		r := newRig(t, first, second)
		if c.want != fabric.ErrTimeout {
			r.ep.cfg.DialTimeout = time.Hour
		}
		err := r.send()
		close(sent)
		if err != nil {
			t.Fatal(err)
		}
		r.until("the end of the carrier", func() bool { return isClosed(first.closed) })
		if err := first.aborted(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) || first.ops() != 1 {
			t.Errorf("%s: %d ops, %v", c.name, first.ops(), err)
		}
		r.until("the conn to be forgotten", func() bool { return r.ep.conns.empty() })
		if c := r.ep.conns.routes.at(r.to); c != nil {
			t.Errorf("a route to %s is kept", c.peer)
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

// TestNextCarrierWaits holds that a new carrier connects only after the one before it has ended
// everything.
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

// TestAcceptedCarrierIsARoute holds that ops go to a peer on the connection that it made, unless
// there is another.
func TestAcceptedCarrierIsARoute(t *testing.T) {
	theirs, again, ours := newFake(), newFake(), newFake()
	r := newRig(t, theirs, again, ours)
	for range 2 {
		r.l.requests <- &fakeRequest{handshake: []byte(handshakeMark + "b")}
	}
	r.until("the second carrier", func() bool { return len(r.next) == 1 })
	r.until("a route", func() bool {
		r.ep.conns.mu.Lock()
		defer r.ep.conns.mu.Unlock()
		return r.ep.conns.byName["b"] != nil
	})
	if err := errors.Join(r.send(), r.send()); err != nil {
		t.Fatal(err)
	}
	if theirs.ops()+again.ops() != 2 || theirs.ops() > 0 && again.ops() > 0 || ours.ops() > 0 {
		t.Fatalf("%d, %d and %d ops", theirs.ops(), again.ops(), ours.ops())
	}
	q := &fakeRequest{handshake: []byte("good day"), reason: make(chan string, 1)}
	r.l.requests <- q
	if why := <-q.reason; !strings.Contains(why, "handshake of") || len(why) > testLimits.MaxPrivate {
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

// empty reports whether every conn is retired.
func (t *conns) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.carriers) == 0
}
