// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/shm/internal/ring"
)

// A notifier puts the remote data of finished writes into the peer's ring. When the ring is full,
// the ops stay pending, in order, until the peer has read. The peer's queue is full then, so this
// is the back-pressure on the sender.
type notifier struct {
	path *dataPath

	mu      sync.Mutex
	ring    ring.Writer
	pending []notice
	stopped bool
}

type notice struct {
	ticket conn.Ticket
	entry  ring.Entry
}

// announce notifies the peer of a write under l whose bytes have been copied, and finishes the op.
// The grant's ticket proves that this side has the region's key.
func (w *notifier) announce(t conn.Ticket, op *fabric.Op, l *regionGrant) {
	if w.add(notice{t, ring.Entry{op.Data, op.Len(), l.Ticket()}}) {
		w.flush()
		return
	}
	w.path.finish(t, w.path.stopCause())
}

// add queues a notice. It returns false if the notifier has stopped.
func (w *notifier) add(n notice) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.pending = append(w.pending, n)
	}
	return !w.stopped
}

// flush moves pending notices into the ring while there is room. It holds no lock when it finishes
// an op.
func (w *notifier) flush() {
	for {
		n, wake, ok, err := w.next()
		if err != nil {
			w.path.ep.Fail(fmt.Errorf("ring of %s: %w", w.path.ep.Peer(), err))
			return
		}
		if !ok {
			return
		}
		if wake {
			w.path.send(frameWake, nil)
		}
		w.path.finish(n.ticket, nil)
	}
}

// next moves the oldest notice into the ring. wake is true if the consumer is parked. If there is
// no room, next asks the peer to send frameSpace.
func (w *notifier) next() (n notice, wake, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || len(w.pending) == 0 {
		return n, false, false, nil
	}
	n = w.pending[0]
	if ok, err = w.ring.Put(n.entry); !ok && err == nil {
		w.ring.AskForSpace()
		ok, err = w.ring.Put(n.entry)
	}
	if !ok {
		return n, false, false, err
	}
	w.pending = w.pending[:copy(w.pending, w.pending[1:])]
	return n, w.ring.ConsumerWaits(), true, nil
}

// stop returns the ops whose remote data the peer will not get.
func (w *notifier) stop() []notice {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	rest := w.pending
	w.pending = nil
	return rest
}
