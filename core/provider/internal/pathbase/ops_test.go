// SPDX-License-Identifier: MIT

package pathbase

import (
	"errors"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
)

// A port records what a data path does to its connection.
type port struct {
	finished            map[conn.Ticket]error
	forwarded, handed   []conn.Ticket
	refusesFrames, fail error
}

func (p *port) Finish(t conn.Ticket, err error) {
	if p.finished == nil {
		p.finished = make(map[conn.Ticket]error)
	}
	p.finished[t] = err
}
func (p *port) Forward(t conn.Ticket)         { p.forwarded = append(p.forwarded, t) }
func (p *port) HandBack(t conn.Ticket)        { p.handed = append(p.handed, t) }
func (p *port) SendFrame(uint8, []byte) error { return p.refusesFrames }
func (p *port) Fail(err error)                { p.fail = err }
func (p *port) Peer() fabric.Addr             { return "@peer" }

// Each op ends once, in its own way. Stop waits for all of them.
func TestOps(t *testing.T) {
	p, o := &port{}, Ops{}
	o.Init(p, "test")
	if o.IsStopped() || o.Cause() != nil {
		t.Errorf("stopped by %v at first", o.Cause())
	}
	for ticket := range conn.Ticket(5) {
		if !o.Admit(ticket) {
			t.Fatalf("op %d is not admitted", ticket)
		}
	}
	o.Refuse()
	o.HandBack(1)
	o.Complete(2, true, nil)
	o.Complete(3, true, fabric.ErrRange)
	empty, why := o.Stop(nil)
	if why != fabric.ErrConnAborted || o.Cause() != why || !o.IsStopped() || !IsClosed(o.Stopped) {
		t.Errorf("stopped by %v, cause %v", why, o.Cause())
	}
	if IsClosed(empty) {
		t.Error("empty with an op pending")
	}
	if o.Admit(9) || p.finished[9] != why {
		t.Errorf("after the end an op is finished with %v", p.finished[9])
	}
	o.Complete(4, false, nil)
	<-empty
	if len(p.handed) != 1 || p.handed[0] != 1 || len(p.forwarded) != 1 || p.forwarded[0] != 2 {
		t.Errorf("handed back %v, forwarded %v", p.handed, p.forwarded)
	}
	if err, ok := p.finished[4]; len(p.finished) != 3 || p.finished[3] != fabric.ErrRange || !ok || err != nil {
		t.Errorf("finished %v", p.finished)
	}
}

// A frame that cannot be sent fails the connection, unless the connection has already ended.
func TestSend(t *testing.T) {
	p, o := &port{refusesFrames: fabric.ErrAgain}, Ops{}
	o.Init(p, "test")
	if o.Send(7, nil); !errors.Is(p.fail, fabric.ErrAgain) {
		t.Errorf("failed with %v", p.fail)
	}
	o.Stop(fabric.ErrCanceled)
	p.fail = nil
	if o.Send(7, nil); p.fail != nil {
		t.Errorf("failed with %v after the end", p.fail)
	}
}

func TestSlowPath(t *testing.T) {
	var first []string
	s := SlowPath{First: func(why error) { first = append(first, why.Error()) }}
	if s.Reason() != "" {
		t.Errorf("slow for %q at first", s.Reason())
	}
	s.Note(errors.New("one"))
	s.Note(errors.New("two"))
	if s.Reason() != "two" || len(first) != 1 || first[0] != "one" {
		t.Errorf("slow for %q, logged %q", s.Reason(), first)
	}
}
