// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"time"

	"mori/core/fabric"
)

// Close ends all ops and all grants, in both directions; see conn.DataPath. If a device does not
// end its copies in time, Close does not wait for it any longer. The copies' memory then stays
// mapped and registered, and MR.Close returns ErrTimeout.
func (dp *dataPath) Close(cause error) {
	ops, cause := dp.ops.Stop(cause)
	dp.peer.ours.Close()
	deadline := time.Now().Add(dp.within)
	served := dp.server.gate.Shut()
	dp.domain.engine.cancel(dp, cause)
	if !dp.peer.ours.Await(dp.peer.process, dp.within) {
		dp.log.Warn("p2p: the peer did not finish its copies", "peer", dp.port.Peer(), "pid", dp.peer.process.PID, "after", dp.within)
	}
	dp.orders.drop(cause)
	ended := dp.await(ops, deadline) && dp.await(served, deadline)
	if !ended {
		copies := dp.ops.abandon() + dp.server.pending.Len()
		dp.log.Error("p2p: a device did not finish its copies, their memory stays registered", "peer", dp.port.Peer(), "copies", copies, "after", dp.within)
	}
	dp.grants.stop(ended)
	if ended {
		dp.peer.Release()
	} else {
		dp.peer.process.Close() // copies in progress still count in the peer's page
	}
	dp.domain.all.Leave(&dp.member)
}

// await waits for a gate to empty, at least for a moment even after the deadline.
func (dp *dataPath) await(empty <-chan struct{}, deadline time.Time) bool {
	t := time.NewTimer(max(time.Until(deadline), dp.within/5))
	defer t.Stop()
	select {
	case <-empty:
		return true
	case <-t.C:
		return false
	}
}

// watch ends the connection when the peer's process has ended although its socket is still open,
// for example in a child of that process.
func (dp *dataPath) watch() {
	if dp.peer.process.AwaitEnd() {
		dp.port.Fail(fmt.Errorf("process %d of %s ended: %w", dp.peer.process.PID, dp.port.Peer(), fabric.ErrConnReset))
	}
}
