// SPDX-License-Identifier: MIT

package util

import (
	"errors"
	"testing"

	"mori/core/fabric"
)

func TestState(t *testing.T) {
	for _, c := range []struct {
		at                                      string
		config, enable, conn, send, recv, early error
	}{
		{"idle", nil, nil, fabric.ErrOpBadState, fabric.ErrOpBadState, fabric.ErrOpBadState, fabric.ErrOpBadState},
		{"enabled", fabric.ErrOpBadState, fabric.ErrOpBadState, nil, fabric.ErrNotConn, nil, nil},
		{"connecting", fabric.ErrOpBadState, fabric.ErrOpBadState, fabric.ErrIsConn, fabric.ErrNotConn, nil, nil},
		{"connected", fabric.ErrOpBadState, fabric.ErrOpBadState, fabric.ErrIsConn, nil, nil, nil},
		{"shut down", fabric.ErrOpBadState, fabric.ErrOpBadState, fabric.ErrIsConn, fabric.ErrNotConn, fabric.ErrNotConn, fabric.ErrNotConn},
		{"closed", fabric.ErrClosed, fabric.ErrClosed, fabric.ErrClosed, fabric.ErrClosed, fabric.ErrClosed, fabric.ErrClosed},
	} {
		reach := func() *State {
			s := &State{}
			for i, text := range stateText {
				if text == c.at {
					s.v.Store(uint32(i))
				}
			}
			if s.String() != c.at {
				t.Fatalf("no state %q", c.at)
			}
			return s
		}
		for _, try := range []struct {
			name string
			call func(*State) error
			want error
		}{
			{"configure", (*State).Configure, c.config},
			{"enable", (*State).Enable, c.enable},
			{"connect", (*State).Connect, c.conn},
			{"send", func(s *State) error { return s.Submit(fabric.OpSend) }, c.send},
			{"receive", func(s *State) error { return s.Submit(fabric.OpRecv) }, c.recv},
			{"send early", (*State).SubmitEarly, c.early},
		} {
			if err := try.call(reach()); !errors.Is(err, try.want) || (err == nil) != (try.want == nil) {
				t.Errorf("%s: %s: %v, want %v", c.at, try.name, err, try.want)
			}
		}
		if s := reach(); s.Close() != (c.at != "closed") || s.Close() || s.Connected() || s.Shut() {
			t.Errorf("%s: close", c.at)
		}
	}
}

func TestStateGoesThrough(t *testing.T) {
	var s State
	if s.Shut() || s.Connected() || s.IsConnected() {
		t.Fatal("idle is connected")
	}
	if err := errors.Join(s.Enable(), s.Connect()); err != nil {
		t.Fatal(err)
	}
	s.ConnectFailed()
	if err := s.Connect(); err != nil {
		t.Fatalf("connect again after it failed: %v", err)
	}
	if !s.Connected() || !s.IsConnected() || !s.Shut() || s.Shut() {
		t.Fatal("connected does not shut once")
	}
}

func TestQueues(t *testing.T) {
	var q Queues
	cq := newCQ(t, 8)
	eq, err := NewEQ(1)
	if err != nil {
		t.Fatal(err)
	}
	closed := newCQ(t, 1)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"no queue", q.BindCQ(nil, fabric.DirRecv, false), fabric.ErrInvalid},
		{"a nil queue", q.BindCQ((*CQ)(nil), fabric.DirRecv, false), fabric.ErrInvalid},
		{"no direction", q.BindCQ(cq, 0, false), fabric.ErrBadFlags},
		{"a third direction", q.BindCQ(cq, 4, false), fabric.ErrBadFlags},
		{"a closed queue", q.BindCQ(closed, fabric.DirRecv, false), fabric.ErrClosed},
		{"transmit", q.BindCQ(cq, fabric.DirTransmit, true), nil},
		{"half is not enough", q.Complete(), fabric.ErrNoCQ},
		{"transmit again", q.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, true), fabric.ErrOpBadState},
		{"receive", q.BindCQ(cq, fabric.DirRecv, false), nil},
		{"complete", q.Complete(), nil},
		{"no event queue", q.BindEQ(nil), fabric.ErrInvalid},
		{"event queue", q.BindEQ(eq), nil},
		{"event queue again", q.BindEQ(eq), fabric.ErrOpBadState},
		{"busy", cq.Close(), fabric.ErrBusy},
		{"event queue busy", eq.Close(), fabric.ErrBusy},
	} {
		if !errors.Is(c.err, c.want) || (c.err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
	if err := cq.Reserve(4); err != nil {
		t.Fatal(err)
	}
	q.Done(&fabric.Op{Kind: fabric.OpSend, Ctx: 1}, 0)
	q.Done(&fabric.Op{Kind: fabric.OpWrite, Ctx: 2, Flags: fabric.OpWantCQE | fabric.OpInject}, 0)
	q.Done(&fabric.Op{Kind: fabric.OpWrite, Ctx: 3, Flags: fabric.OpWantCQE}, 9)
	q.Failed(&fabric.Op{Kind: fabric.OpRead, Ctx: 4}, fabric.ErrRange, "far")
	if c := readOne(t, cq); c != (fabric.Completion{Ctx: 3, Kind: fabric.OpWrite, Len: 9}) {
		t.Errorf("got %+v", c)
	}
	var e fabric.ErrEntry
	if err := cq.ReadErr(&e); err != nil || e.Ctx != 4 || e.Err != fabric.ErrRange || cq.Reserve(8) != nil {
		t.Errorf("got %+v, %v", e, err)
	}
	q.Unbind()
	if err := errors.Join(cq.Close(), eq.Close()); err != nil {
		t.Error(err)
	}
}
