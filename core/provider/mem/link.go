// SPDX-License-Identifier: MIT

package mem

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util/receive"
)

// A link is a connection: the state that its two endpoints share.
type link struct {
	ends [2]*endpoint
	once sync.Once
	done chan struct{} // closed by end

	cause [2]fabric.Errno // why the connection ended, for each side; set before done is closed
}

func newLink(a, b *endpoint) *link {
	return &link{ends: [2]*endpoint{a, b}, done: make(chan struct{})}
}

// side returns the index of e.
func (l *link) side(e *endpoint) int {
	if l.ends[0] == e {
		return 0
	}
	return 1
}

// end ends the connection with a cause for e and one for its peer. Only the first call has an
// effect. It does not block.
func (l *link) end(e *endpoint, mine, theirs fabric.Errno) {
	l.once.Do(func() {
		i := l.side(e)
		l.cause[i], l.cause[1-i] = mine, theirs
		close(l.done)
	})
}

// join makes e an end of l. e is connecting, so it cannot be closed now.
func (e *endpoint) join(l *link, peer fabric.Addr) {
	sender := l.ends[1-l.side(e)]
	e.feed = e.recv.Feed(receive.FeedConfig{
		Room:    earlyRoom,
		Source:  e.source,
		Changed: sender.pending.wakeUp,
		Placed:  sender.pending.placed,
	})
	e.mu.Lock()
	e.link, e.peerName = l, peer
	e.State.Connected()
	e.mu.Unlock()
	e.Queues.EQ.Push(fabric.Event{Kind: fabric.EventConnected, EP: e})
}

// finish ends every op. Nothing accesses this side's memory any more.
func (e *endpoint) finish(cause fabric.Errno) {
	e.State.Shut()
	detail := fmt.Sprintf("connection to %s ended", e.peerName)
	e.pending.flush(cause, detail)
	e.feed.End()
	if !e.shared {
		e.recv.End(cause, detail)
	}
	e.Queues.EQ.Push(fabric.Event{Kind: fabric.EventShutdown, EP: e, Err: fmt.Errorf("%s: %w", detail, cause)})
	close(e.gone)
}
