// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"
	"time"

	"mori/core/fabric"
)

// stuckAfter is how long a copy of this side may still take after its connection has ended. A slice
// takes 0.1 ms, unless one of its page faults is not served.
const stuckAfter = 500 * time.Millisecond

// letGo bounds the wait for a peer to return a grant, or to end the slices that it is copying.
const letGo = 5 * time.Second

// Close ends all ops and all grants, in both directions; see conn.DataPath.
func (dp *dataPath) Close(cause error) {
	if cause == nil {
		cause = fabric.ErrConnAborted
	}
	dp.mu.Lock()
	dp.cause = cause
	dp.stopping.Store(true)
	var parked []parkedOp
	for _, ops := range dp.parked {
		parked = append(parked, ops...)
	}
	clear(dp.parked)
	dp.mu.Unlock()
	dp.holder.Stop()
	dp.inbox.notices.Fence().Close()
	empty := dp.ops.Shut()
	dp.domain.pool.cancel(dp, cause)
	for _, p := range parked {
		dp.finish(p.ticket, cause)
	}
	for _, n := range dp.notifier.stop() {
		dp.finish(n.ticket, cause)
	}
	dp.awaitPeer()
	dp.inbox.settle()
	for _, s := range dp.outbox.stop() {
		dp.finish(s.ticket, cause)
	}
	stuck := dp.awaitCopies(empty, cause)
	dp.granter.Stop()
	dp.inbox.stop(cause)
	dp.domain.leave(dp)
	if stuck == nil {
		dp.greet.Release()
		return
	}
	go func() { // the fence that protects the copies is in the rings' memory
		stuck.Wait()
		dp.greet.Release()
	}()
}

// awaitCopies waits until the ops have ended. It abandons copies that are stuck in a page fault,
// with a warning, because the kernel does not cancel them.
func (dp *dataPath) awaitCopies(empty <-chan struct{}, cause error) (stuck *sync.WaitGroup) {
	late := time.NewTimer(stuckAfter)
	defer late.Stop()
	select {
	case <-empty:
		return nil
	case <-late.C:
	}
	dp.log.Warn("shm: copies wait for a page fault that is not served, and may end later", "peer", dp.ep.Peer(), "pid", dp.greet.peer.PID)
	stuck = dp.domain.pool.abandon(dp, cause)
	<-empty
	return stuck
}

// awaitPeer waits until the peer copies nothing from or to this side's memory. New copies can no
// longer start.
func (dp *dataPath) awaitPeer() {
	if !dp.inbox.notices.Fence().Await(dp.greet.peer, letGo) {
		dp.log.Warn("shm: the peer did not finish its copies", "peer", dp.ep.Peer(), "pid", dp.greet.peer.PID, "after", letGo)
	}
}

// watch ends the connection when the peer's process has ended, even if another process keeps its
// socket open.
func (dp *dataPath) watch() {
	if dp.greet.peer.AwaitEnd() {
		dp.ep.Fail(fmt.Errorf("process %d of %s ended: %w", dp.greet.peer.PID, dp.ep.Peer(), fabric.ErrConnReset))
	}
}
