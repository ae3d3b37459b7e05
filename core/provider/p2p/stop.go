// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/local"
)

// Close ends all ops and all loans, in both directions; see conn.DataPath. A device that does not end its copies within letGo is not waited
// for: what they touch stays mapped and registered then, and MR.Close of it says so.
func (m *mover) Close(cause error) {
	if cause == nil {
		cause = fabric.ErrConnAborted
	}
	m.mu.Lock()
	m.cause = cause
	m.mu.Unlock()
	close(m.stopped)
	m.ours.Close()
	deadline := time.Now().Add(m.letGo)
	ops, serving := m.ops.Shut(), m.serving.Shut()
	m.domain.engine.cancel(m, cause)
	if !m.ours.Await(m.greet.peer, m.letGo) {
		m.log.Warn("p2p: peer does not end its copies", "peer", m.ep.Peer(), "pid", m.greet.peer.PID, "after", m.letGo)
	}
	m.dropOrders(cause)
	ended := m.await(ops, deadline) && m.await(serving, deadline)
	if !ended {
		m.abandon()
	}
	m.lender.Stop()
	m.giveBack(ended)
	if ended {
		m.greet.Release()
	} else {
		m.greet.peer.Close() // copies under way still count themselves in the peer's page
	}
	m.domain.leave(m)
}

// await waits for a gate, and for a moment after the deadline.
func (m *mover) await(empty <-chan struct{}, deadline time.Time) bool {
	t := time.NewTimer(max(time.Until(deadline), m.letGo/5))
	defer t.Stop()
	select {
	case <-empty:
		return true
	case <-t.C:
		return false
	}
}

// abandon ends the ops whose copies a device does not end.
func (m *mover) abandon() {
	var late []conn.Ticket
	m.mu.Lock()
	for f := range m.live {
		if f.order == nil && f.ended.CompareAndSwap(false, true) {
			late = append(late, f.ticket)
		}
	}
	under := len(m.live)
	m.mu.Unlock()
	m.log.Error("p2p: a device does not end its copies: what they touch stays registered", "peer", m.ep.Peer(), "copies", under, "after", m.letGo)
	for _, t := range late {
		m.ep.Finish(t, local.OpFault(fabric.ErrTimeout, "the device did not end its copy with %s within %v: its memory must not be used again", m.ep.Peer(), m.letGo))
		m.ops.Leave()
	}
}

// giveBack closes what was opened of the peer's regions, unless copies may still touch it.
func (m *mover) giveBack(ended bool) {
	left := m.borrower.Stop()
	if ended {
		m.borrower.Wait() // nobody is inside the loans any more
	}
	close(m.gaveUp)
	m.borrower.Wait()
	if !ended {
		return
	}
	for _, l := range left {
		if l.Use.Shut(); l.Granted() {
			m.unreach(l)
		}
	}
}

// watch ends the connection when the peer's process has ended, although somebody keeps its socket open.
func (m *mover) watch() {
	if m.greet.peer.AwaitEnd() {
		m.ep.Fail(fmt.Errorf("process %d of %s ended: %w", m.greet.peer.PID, m.ep.Peer(), fabric.ErrConnReset))
	}
}
