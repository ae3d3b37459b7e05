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

	leaveGrace = 5 * time.Second        // from a rank's Close to Failed of ranks that have not closed
	askTime    = 500 * time.Millisecond // that rank 0 waits for the positions of ranks
	replyTime  = 2 * askTime            // that a rank waits for rank 0's diagnosis
)

// A member is this rank in a group over the network.
//
// Every rank has a connection with rank 0, its control link, for errors; and one with its parent
// and each of its children in the tree, for collective calls. Rank 0 uses the same connections for
// both. The reader of each link runs the state below under mu. Sending never blocks.
type member struct {
	rank, size, radix int
	timeout, leaving  time.Duration

	failed chan struct{} // closed with err set
	shut   chan struct{} // closed by Close

	mu        sync.Mutex
	err       error
	broke     failure // err, for others
	closed    bool
	control   map[int]*link // of rank 0: to every rank that has joined; of others: to rank 0
	parent    *link         // in the tree; nil for rank 0
	kids      map[int]*link
	links     []*link        // all
	leaves    map[int]uint64 // ranks that have left, and after how many calls
	timers    []*time.Timer
	assembly  assembly
	calls     calls
	diagnoser diagnoser
}

var _ Group = (*member)(nil)

func newMember(rank, size int, o Options) *member {
	m := &member{
		rank: rank, size: size, radix: o.radix, timeout: o.Timeout, leaving: o.grace,
		failed: make(chan struct{}), shut: make(chan struct{}),
		control: map[int]*link{}, kids: map[int]*link{}, leaves: map[int]uint64{},
	}
	m.assembly = newAssembly(m)
	m.calls = calls{m: m, ups: map[int]frame{}}
	m.diagnoser = diagnoser{m: m}
	return m
}

func (m *member) Rank() int               { return m.rank }
func (m *member) Size() int               { return m.size }
func (m *member) Failed() <-chan struct{} { return m.failed }

func (m *member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// addLink makes a link of conn, whose handshake is complete. m.mu is held. The caller starts the
// reader by serve.
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
		m.lost(l, l.read(func(f frame) { m.handle(l, f) }))
	}()
}

// fail breaks the group at this rank, once. Rank 0 sends the failure to all. m.mu is held.
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

// report is fail, and has rank 0 send the failure to all. m.mu is held.
func (m *member) report(f failure) {
	m.fail(f)
	m.reportToRoot(f)
}

// reportToRoot leaves it to rank 0 to decide what broke. m.mu is held.
func (m *member) reportToRoot(f failure) {
	if root := m.control[0]; root != nil && !m.closed {
		root.send(frame{kind: frameReport, payload: f.append(nil)})
	}
}

func (m *member) stopTimers() {
	for _, t := range m.timers {
		t.Stop()
	}
	m.diagnoser.stop()
}

// lost handles the end of the process at the other end of a link.
func (m *member) lost(l *link, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended(l, err)
}

// ended handles the end of a link. m.mu is held.
func (m *member) ended(l *link, err error) {
	if m.closed || m.err != nil {
		return
	}
	_, left := m.leaves[l.peer]
	died := failure{kind: failDied, rank: l.peer, text: causeText(err)}
	switch {
	case left && l == m.parent && m.calls.cur != nil:
		m.report(failure{kind: failLeft, rank: l.peer}) // the result of the call will not come any more
	case left:
	case m.control[l.peer] == l:
		m.fail(died)
	default:
		// The peer has died, or only this connection has, or rank 0 died before and the peer left
		// because of it. Rank 0 decides.
		died.text = fmt.Sprintf("rank %d lost it: %s", m.rank, died.text)
		if _, left := m.leaves[0]; left {
			m.fail(died)
			return
		}
		m.reportToRoot(died)
		m.failLater(askTime, died)
	}
}

// failLater breaks the group if it has not been broken by then. m.mu is held.
func (m *member) failLater(d time.Duration, f failure) {
	m.timers = append(m.timers, time.AfterFunc(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if _, left := m.leaves[f.rank]; f.kind != failDied || !left {
			m.fail(f)
		}
	}))
}

// handle handles one frame of l.
func (m *member) handle(l *link, f frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.err != nil {
		return
	}
	if err := m.take(l, f); err != nil {
		m.report(failure{kind: failOther, text: fmt.Sprintf("rank %d received from rank %d: %v", m.rank, l.peer, err)})
	}
}

// take returns an error for a frame that only a broken program can send. m.mu is held.
func (m *member) take(l *link, f frame) error {
	fromRoot, toRoot := m.rank != 0 && m.control[0] == l, m.rank == 0
	switch {
	case f.kind == frameUp && m.kids[l.peer] == l:
		return m.calls.up(l.peer, f)
	case f.kind == frameDown && m.parent == l:
		return m.calls.down(f)
	case f.kind == frameLeave:
		return m.leave(l, f)
	case f.kind == frameParent && fromRoot && !m.assembly.parentKnown:
		m.assembly.receiveParent(string(f.payload))
	case f.kind == frameGo && fromRoot:
		m.assembly.complete()
	case f.kind == frameFailed && fromRoot:
		return m.reported(f)
	case f.kind == frameWho && fromRoot:
		l.send(m.calls.position().frame())
	case f.kind == frameReady && toRoot:
		m.assembly.receiveReady(l.peer)
	case f.kind == frameReport:
		return m.reported(f)
	case f.kind == frameLate && toRoot:
		return m.diagnoser.late(l.peer, f)
	case f.kind == frameHere && toRoot:
		m.diagnoser.replied(l.peer, position{seq: f.seq, what: f.what(), in: f.rank != 0})
	default:
		return fmt.Errorf("%w: unexpected kind %d", errFrame, f.kind)
	}
	return nil
}

// reported handles a failure that another rank has seen. m.mu is held.
func (m *member) reported(f frame) error {
	fail, err := parseFailure(f.payload, m.size)
	if err != nil {
		return err
	}
	if _, left := m.leaves[fail.rank]; fail.kind == failDied && left {
		return nil // its connections end because it has left
	}
	if m.rank == 0 && fail.kind == failMismatch && m.assembly.isComplete() {
		m.diagnoser.start(&diagnosis{kind: failMismatch, text: fail.text})
		return nil
	}
	m.fail(fail)
	return nil
}

// leave handles a rank's message that it will enter no call after f.seq. m.mu is held.
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
		m.failLater(m.leaving, failure{kind: failLeft, rank: rank})
	}
	return nil
}

// checkLeaves breaks the group if this rank is in a call that a rank will not enter. m.mu is held.
func (m *member) checkLeaves() {
	if m.calls.cur == nil {
		return
	}
	for rank, seq := range m.leaves {
		if seq < m.calls.cur.seq {
			m.report(failure{kind: failLeft, rank: rank})
			return
		}
	}
}

// Close leaves the group. It waits a short time until its frames have left this process.
func (m *member) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	last := frame{kind: frameLeave, rank: uint32(m.rank), seq: m.calls.seq}
	if m.calls.cur != nil {
		last.seq-- // the others will not get all of that call
	}
	if m.err != nil { // a rank that does not know yet must not take this leaving for the cause
		last = frame{kind: frameReport, payload: m.broke.append(nil)}
	}
	for _, l := range m.links {
		l.send(last)
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

// notJoined lists the ranks that have not connected to rank 0. m.mu is held.
func (m *member) notJoined() (ranks []int) {
	for r := 1; r < m.size; r++ {
		if m.control[r] == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
