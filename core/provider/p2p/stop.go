// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/local"
)

// Close ends all ops and all grants, in both directions; see conn.DataPath. A device that does not
// end its copies within letGo is not waited for: what they touch stays mapped and registered then,
// and MR.Close of it says so.
func (dp *dataPath) Close(cause error) {
	cause = dp.Stop(cause)
	dp.ours.Close()
	deadline := time.Now().Add(dp.letGo)
	ops, serving := dp.Ops.Shut(), dp.serving.Shut()
	dp.domain.engine.cancel(dp, cause)
	if !dp.ours.Await(dp.greet.peer, dp.letGo) {
		dp.log.Warn("p2p: peer does not end its copies", "peer", dp.ep.Peer(), "pid", dp.greet.peer.PID, "after", dp.letGo)
	}
	dp.dropOrders(cause)
	ended := dp.await(ops, deadline) && dp.await(serving, deadline)
	if !ended {
		dp.abandon()
	}
	dp.granter.Stop()
	dp.giveBack(ended)
	if ended {
		dp.greet.Release()
	} else {
		dp.greet.peer.Close() // copies under way still count themselves in the peer's page
	}
	dp.domain.leave(dp)
}

// await waits for a gate, and for a moment after the deadline.
func (dp *dataPath) await(empty <-chan struct{}, deadline time.Time) bool {
	t := time.NewTimer(max(time.Until(deadline), dp.letGo/5))
	defer t.Stop()
	select {
	case <-empty:
		return true
	case <-t.C:
		return false
	}
}

// abandon ends the ops whose copies a device does not end.
func (dp *dataPath) abandon() {
	var late []conn.Ticket
	under := 0
	dp.pending.Any(func(f *flight) bool {
		if under++; f.order == nil && f.ended.CompareAndSwap(false, true) {
			late = append(late, f.ticket)
		}
		return false
	})
	dp.log.Error("p2p: a device does not end its copies: what they touch stays registered", "peer", dp.ep.Peer(), "copies", under, "after", dp.letGo)
	for _, t := range late {
		dp.ep.Finish(t, local.OpFault(fabric.ErrTimeout, "the device did not end its copy with %s within %v: its memory must not be used again", dp.ep.Peer(), dp.letGo))
		dp.Ops.Leave()
	}
}

// giveBack closes what was opened of the peer's regions, unless copies may still touch it.
func (dp *dataPath) giveBack(ended bool) {
	left := dp.holder.Stop()
	if ended {
		dp.holder.Wait() // nobody is inside the grants any more
	}
	close(dp.gaveUp)
	dp.holder.Wait()
	if !ended {
		return
	}
	for _, l := range left {
		if l.Use.Shut(); l.Granted() {
			dp.unreach(l)
		}
	}
}

// watch ends the connection when the peer's process has ended, although somebody keeps its socket
// open.
func (dp *dataPath) watch() {
	if dp.greet.peer.AwaitEnd() {
		dp.ep.Fail(fmt.Errorf("process %d of %s ended: %w", dp.greet.peer.PID, dp.ep.Peer(), fabric.ErrConnReset))
	}
}
