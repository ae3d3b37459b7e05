// SPDX-License-Identifier: MIT

package verbs

import (
	"time"

	"mori/core/fabric"
)

// deadLetGo is how long other devices of a connection may take to end their work where one is dead, whose work ends with its queue pairs.
const deadLetGo = 100 * time.Millisecond

// Close ends all ops and all loans, in both directions; see conn.DataPath. Once the queue pairs are gone no NIC touches memory for this
// connection any more: neither ours for what we asked, nor ours for what the peer does.
func (m *mover) Close(cause error) {
	if cause == nil {
		cause = fabric.ErrConnAborted
	}
	m.mu.Lock()
	m.cause = cause
	m.mu.Unlock()
	close(m.stopped)
	m.borrower.Stop()
	empty := m.ops.Shut()
	m.setup.Wait()
	m.mu.Lock()
	rails := m.rails
	m.mu.Unlock()
	wait := m.letGo
	for _, r := range rails {
		r.shut(cause)
		if r.nic.dead.Load() {
			wait = min(wait, deadLetGo)
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
		m.log.Warn("verbs: a device does not end its work: its queue pairs are taken away under it", "peer", m.ep.Peer(), "after", wait)
	}
	close(m.gone)
	for _, r := range rails {
		logged(m.log, "close a rail", r.close())
	}
	<-empty // what was left has ended with its queue pair
	m.notices.stop()
	m.lender.Stop()
	m.domain.leave(m)
}
