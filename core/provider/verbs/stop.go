// SPDX-License-Identifier: MIT

package verbs

import "time"

// deadReleaseWait bounds the wait for the other devices of a connection if one is dead, whose
// work ends with its queue pairs.
const deadReleaseWait = 100 * time.Millisecond

// Close ends all ops and all grants, in both directions; see conn.DataPath. Once the queue pairs
// are gone no NIC touches memory for this connection any more: neither ours for what we asked, nor
// ours for what the peer does.
func (dp *dataPath) Close(cause error) {
	cause = dp.Stop(cause)
	dp.holder.Stop()
	empty := dp.Ops.Shut()
	dp.setup.Wait()
	dp.mu.Lock()
	rails := dp.rails
	dp.mu.Unlock()
	wait := dp.within
	for _, r := range rails {
		r.shut(cause)
		if r.nic.dead.Load() {
			wait = min(wait, deadReleaseWait)
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
		dp.log.Warn("verbs: a device did not finish its work, destroying its queue pairs", "peer", dp.ep.Peer(), "after", wait)
	}
	close(dp.gone)
	for _, r := range rails {
		logged(dp.log, "close a rail", r.close())
	}
	<-empty // what was left has ended with its queue pair
	dp.notices.stop()
	dp.granter.Stop()
	dp.all.Leave(&dp.member)
}
