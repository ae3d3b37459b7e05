// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	radix = 8

	// After Close by a rank, the others have so long to close as well, or Failed tells them.
	leaveGrace = 5 * time.Second
	// Rank 0 waits so long for the ranks to say where they are.
	askTime = 500 * time.Millisecond
	// A rank whose time is over waits so long for rank 0 to say who was missing.
	answerTime = 2 * askTime
)

// A member is this rank in a group over the network.
//
// Every rank has a connection with rank 0, its control link, for what breaks a group; and one with its parent and each of its children in
// the tree, for collective calls. Those of rank 0 are the same ones. Readers, one for each link, run the state below under mu; what
// they send never blocks.
type member struct {
	rank, size, radix int
	timeout, leaving  time.Duration

	failed  chan struct{} // closed with err set
	shut    chan struct{} // closed by Close
	went    chan struct{} // closed when all ranks are connected
	allCame chan struct{} // of rank 0: closed when every rank has come, even if it was not let in
	place   chan string   // where the parent listens, told by rank 0 once

	mu      sync.Mutex
	err     error
	broke   failure // err, for others
	closed  bool
	control map[int]*link // of rank 0: to every rank that has come; of others: to rank 0
	parent  *link         // in the tree; nil for rank 0
	kids    map[int]*link
	links   []*link        // all
	leaves  map[int]uint64 // ranks that have left, and after how many calls
	timers  []*time.Timer
	placed  bool           // the tree is known here
	ready   map[int]bool   // of rank 0: ranks that are connected
	homes   map[int]string // of rank 0: where ranks listen for their children
	seen    map[int]bool   // of rank 0: ranks that have come
	inquest *inquest

	seq  uint64 // calls entered
	last what   // the latest of them
	cur  *call  // nil if the latest is done
	ups  map[int]frame
}

var _ Group = (*member)(nil)

func newMember(rank, size int, o Options) *member {
	return &member{
		rank: rank, size: size, radix: o.radix, timeout: o.Timeout, leaving: o.grace,
		failed: make(chan struct{}), shut: make(chan struct{}), went: make(chan struct{}), allCame: make(chan struct{}), place: make(chan string, 1),
		control: map[int]*link{}, kids: map[int]*link{}, leaves: map[int]uint64{}, ready: map[int]bool{}, homes: map[int]string{}, seen: map[int]bool{}, ups: map[int]frame{},
	}
}

func (m *member) Rank() int               { return m.rank }
func (m *member) Size() int               { return m.size }
func (m *member) Failed() <-chan struct{} { return m.failed }

func (m *member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// addLink takes conn, whose handshake is done. m.mu is held; the caller starts the reader by serve.
func (m *member) addLink(peer int, conn *net.TCPConn) (*link, error) {
	l, err := newLink(peer, conn)
	if err != nil {
		return nil, fmt.Errorf("connection with rank %d: %w", peer, err)
	}
	m.links = append(m.links, l)
	return l, nil
}

// serve reads l in the background until it ends.
func (m *member) serve(l *link) {
	go func() {
		err := l.read(func(f frame) { m.handle(l, f) })
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ended(l, err)
	}()
}

// fail breaks the group at this rank, once. Rank 0 tells all. m.mu is held.
func (m *member) fail(f failure) {
	if m.err != nil || m.closed {
		return
	}
	m.err, m.broke = f.err(), f
	close(m.failed)
	m.stopTimers()
	if m.rank != 0 {
		return
	}
	for _, l := range m.control {
		l.send(frame{kind: frameFailed, payload: f.append(nil)})
	}
}

// report is fail, and makes rank 0 tell all. m.mu is held.
func (m *member) report(f failure) {
	m.fail(f)
	m.tellRoot(f)
}

// tellRoot leaves it to rank 0 to decide what broke. m.mu is held.
func (m *member) tellRoot(f failure) {
	if root := m.control[0]; root != nil && !m.closed {
		root.send(frame{kind: frameReport, payload: f.append(nil)})
	}
}

func (m *member) stopTimers() {
	for _, t := range m.timers {
		t.Stop()
	}
	if m.inquest != nil {
		m.inquest.timer.Stop()
	}
}

// ended is the end of a link. m.mu is held.
func (m *member) ended(l *link, err error) {
	if m.closed || m.err != nil {
		return
	}
	_, left := m.leaves[l.peer]
	died := failure{kind: failDied, rank: l.peer, text: causeText(err)}
	switch {
	case left && l == m.parent && m.cur != nil:
		m.report(failure{kind: failLeft, rank: l.peer}) // the result of the call will not come any more
	case left:
	case m.control[l.peer] == l:
		m.fail(died)
	default:
		// The peer has died, or only this connection has, or rank 0 has died before and the peer went away because of it: rank 0 knows.
		died.text = fmt.Sprintf("rank %d has lost it: %s", m.rank, died.text)
		if _, left := m.leaves[0]; left {
			m.fail(died)
			return
		}
		m.tellRoot(died)
		m.later(askTime, died)
	}
}

// later breaks the group if nobody has told what broke by then. m.mu is held.
func (m *member) later(d time.Duration, f failure) {
	m.timers = append(m.timers, time.AfterFunc(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if _, left := m.leaves[f.rank]; f.kind != failDied || !left {
			m.fail(f)
		}
	}))
}

// handle takes one frame of l.
func (m *member) handle(l *link, f frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.err != nil {
		return
	}
	if err := m.take(l, f); err != nil {
		m.report(failure{kind: failOther, text: fmt.Sprintf("rank %d gets from rank %d: %v", m.rank, l.peer, err)})
	}
}

// take returns an error if f can only come from a broken program. m.mu is held.
func (m *member) take(l *link, f frame) error {
	fromRoot, toRoot := m.rank != 0 && m.control[0] == l, m.rank == 0
	switch {
	case f.kind == frameUp && m.kids[l.peer] == l:
		return m.up(l.peer, f)
	case f.kind == frameDown && m.parent == l:
		return m.down(f)
	case f.kind == frameLeave:
		return m.leave(l, f)
	case f.kind == framePlace && fromRoot && !m.placed:
		m.placed = true
		m.place <- string(f.payload)
		m.checkReady()
	case f.kind == frameGo && fromRoot:
		m.goOn()
	case f.kind == frameFailed && fromRoot:
		return m.told(f)
	case f.kind == frameWho && fromRoot:
		l.send(m.here().frame())
	case f.kind == frameReady && toRoot:
		m.ready[l.peer] = true
		m.checkReady()
	case f.kind == frameReport:
		return m.told(f)
	case f.kind == frameLate && toRoot:
		return m.late(l.peer, f)
	case f.kind == frameHere && toRoot:
		m.answered(l.peer, place{seq: f.seq, what: f.what(), in: f.rank != 0})
	default:
		return fmt.Errorf("%w: kind %d does not belong here", errFrame, f.kind)
	}
	return nil
}

// told is a failure that another rank has seen. m.mu is held.
func (m *member) told(f frame) error {
	fail, err := parseFailure(f.payload, m.size)
	if err != nil {
		return err
	}
	if _, left := m.leaves[fail.rank]; fail.kind == failDied && left {
		return nil // its connections end because it has left
	}
	if m.rank == 0 && fail.kind == failMismatch && m.isWent() {
		m.ask(&inquest{kind: failMismatch, text: fail.text})
		return nil
	}
	m.fail(fail)
	return nil
}

// leave is that a rank will enter no call after f.seq. m.mu is held.
func (m *member) leave(l *link, f frame) error {
	rank := int(f.rank)
	if rank != l.peer && (m.rank == 0 || l != m.control[0]) || rank >= m.size || rank == m.rank {
		return fmt.Errorf("%w: rank %d leaves", errFrame, rank)
	}
	if _, known := m.leaves[rank]; known {
		return nil
	}
	m.leaves[rank] = f.seq
	if m.rank == 0 {
		for peer, other := range m.control {
			if peer != rank {
				other.send(frame{kind: frameLeave, rank: f.rank, seq: f.seq})
			}
		}
	}
	if m.checkLeaves(); m.err == nil && len(m.leaves) == 1 {
		m.later(m.leaving, failure{kind: failLeft, rank: rank})
	}
	return nil
}

// checkLeaves breaks the group if this rank is in a call that a rank will not enter. m.mu is held.
func (m *member) checkLeaves() {
	if m.cur == nil {
		return
	}
	for rank, seq := range m.leaves {
		if seq < m.cur.seq {
			m.report(failure{kind: failLeft, rank: rank})
			return
		}
	}
}

// Close leaves. What was sent before still goes out, for which it waits a little.
func (m *member) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	bye := frame{kind: frameLeave, rank: uint32(m.rank), seq: m.seq}
	if m.cur != nil {
		bye.seq-- // what the others still need of it will not come
	}
	if m.err != nil { // who has not heard of it yet must not take our leaving for the cause
		bye = frame{kind: frameReport, payload: m.broke.append(nil)}
	}
	for _, l := range m.links {
		l.send(bye)
	}
	m.closed = true
	close(m.shut)
	m.stopTimers()
	links := m.links
	m.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), min(flushFor, m.timeout))
	defer cancel()
	var wait sync.WaitGroup
	for _, l := range links {
		wait.Add(1)
		go func() {
			defer wait.Done()
			l.finish(ctx)
		}()
	}
	wait.Wait()
	return nil
}

func (m *member) isWent() bool {
	select {
	case <-m.went:
		return true
	default:
		return false
	}
}

// bound gives ctx the group's time limit if it has none.
func (m *member) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, m.timeout)
}
