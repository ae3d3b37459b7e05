// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"
	"time"

	"mori/core/fabric"
)

// stuckAfter is how long a copy of this side may still take once its connection has ended. A slice takes 0.1 ms, unless a page of it does not come.
const stuckAfter = 500 * time.Millisecond

// letGo bounds the wait for a peer: to return a loan, or to end the slices that it is copying.
const letGo = 5 * time.Second

// Close ends all ops and all loans, in both directions; see conn.DataPath.
func (m *mover) Close(cause error) {
	if cause == nil {
		cause = fabric.ErrConnAborted
	}
	m.mu.Lock()
	m.cause = cause
	m.stopping.Store(true)
	var parked []parkedOp
	for _, ops := range m.parked {
		parked = append(parked, ops...)
	}
	clear(m.parked)
	m.mu.Unlock()
	m.borrower.Stop()
	fenceOf(m.inbox.notices.mem).Close()
	empty := m.ops.Shut()
	m.domain.pool.cancel(m, cause)
	for _, p := range parked {
		m.finish(p.ticket, cause)
	}
	for _, n := range m.notifier.stop() {
		m.finish(n.ticket, cause)
	}
	m.awaitPeer()
	m.inbox.settle()
	for _, s := range m.outbox.stop() {
		m.finish(s.ticket, cause)
	}
	stuck := m.awaitCopies(empty, cause)
	m.lender.Stop()
	m.inbox.stop(cause)
	m.domain.leave(m)
	if stuck == nil {
		m.greet.Release()
		return
	}
	go func() { // the rings have the fence that the copies leave
		stuck.Wait()
		m.greet.Release()
	}()
}

// awaitCopies waits until the ops have ended. Copies whose memory does not come are left behind, with a warning: the kernel does not take them back.
func (m *mover) awaitCopies(empty <-chan struct{}, cause error) (stuck *sync.WaitGroup) {
	late := time.NewTimer(stuckAfter)
	defer late.Stop()
	select {
	case <-empty:
		return nil
	case <-late.C:
	}
	m.log.Warn("shm: copies are stuck in a page that does not come, and may end later", "peer", m.ep.Peer(), "pid", m.greet.peer.PID)
	stuck = m.domain.pool.abandon(m, cause)
	<-empty
	return stuck
}

// awaitPeer waits until the peer copies nothing from or to this side's memory. No copy begins any more.
func (m *mover) awaitPeer() {
	if !fenceOf(m.inbox.notices.mem).Await(m.greet.peer, letGo) {
		m.log.Warn("shm: peer does not end its copies", "peer", m.ep.Peer(), "pid", m.greet.peer.PID, "after", letGo)
	}
}

// watch ends the connection when the peer's process has ended, although somebody keeps its socket open.
func (m *mover) watch() {
	if m.greet.peer.AwaitEnd() {
		m.ep.Fail(fmt.Errorf("process %d of %s ended: %w", m.greet.peer.PID, m.ep.Peer(), fabric.ErrConnReset))
	}
}
