// SPDX-License-Identifier: MIT

package conn

import (
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// issueAtomic reports false if the op is answered by a reply, and no socket has credit for one.
func (ep *Endpoint) issueAtomic(s *pendingOp, t *todo) bool {
	j := socket.Job{H: frame.Header{Kind: frame.KindAtomic, Length: s.n, Count: uint32(frame.AtomicCodeOf(s.op.Kind, s.op.Atomic)), Region: s.key.ID, Secret: s.key.Secret,
		Data: s.op.RSeg.Addr}}
	l, wire := ep.lightest(), ep.wire.Load()
	switch {
	case wire != nil && s.replied():
		if wire.readsOut == frame.MaxReads {
			return false
		}
		wire.charge(s, 1)
		l = wire
	case wire != nil:
		l = wire
	case s.replied():
		if l = ep.creditRead(s, 1); l == nil {
			return false
		}
	}
	ep.post(l, s, &j, j.H.PayloadLen(), t)
	return true
}
