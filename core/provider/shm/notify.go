// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/stream"
)

// A notifier puts the remote data of finished writes into the peer's ring. When it is full, the ops stay in flight, in order, until
// the peer has read: its queue is full, and this is what slows us down.
type notifier struct {
	mu      sync.Mutex
	ring    ringWriter
	pending []notice
	stopped bool
}

type notice struct {
	ticket       stream.Ticket
	data, length uint64
}

// announce tells the peer of a write whose bytes are in place, and finishes the op.
func (m *mover) announce(t stream.Ticket, data, length uint64) {
	if m.notifier.add(notice{t, data, length}) {
		m.flush()
		return
	}
	m.finish(t, m.stopCause())
}

// add queues a notice, or reports that the notifier has stopped.
func (w *notifier) add(n notice) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.pending = append(w.pending, n)
	}
	return !w.stopped
}

// flush puts what is pending into the ring while there is room. It holds no lock when it finishes an op.
func (m *mover) flush() {
	for {
		n, wake, ok, err := m.notifier.next()
		if err != nil {
			m.ep.Fail(fmt.Errorf("ring of %s: %w", m.ep.Peer(), err))
			return
		}
		if !ok {
			return
		}
		if wake {
			m.send(frameWake, nil)
		}
		m.finish(n.ticket, nil)
	}
}

// next moves the oldest notice into the ring. wake: the consumer is parked. Without room the flag is set that makes the
// peer send frameSpace.
func (w *notifier) next() (n notice, wake, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || len(w.pending) == 0 {
		return n, false, false, nil
	}
	n = w.pending[0]
	if ok, err = w.ring.put(n.data, n.length); !ok && err == nil {
		w.ring.wait()
		ok, err = w.ring.put(n.data, n.length)
	}
	if !ok {
		return n, false, false, err
	}
	w.pending = w.pending[:copy(w.pending, w.pending[1:])]
	return n, w.ring.consumerWaits(), true, nil
}

// stop returns the ops that the peer will not hear of any more.
func (w *notifier) stop() []notice {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	rest := w.pending
	w.pending = nil
	return rest
}

// An inbox hands the remote data in this side's ring to the completion queue, when somebody looks there: a util.Source.
type inbox struct {
	cq   *util.CQ
	tell func(kind uint8)
	fail func(error)

	mu      sync.Mutex
	ring    ringReader
	armed   int                 // readers that are parked
	late    []fabric.Completion // what the ring held when the connection ended and the queue had no place for
	stopped bool
}

var _ util.Source = (*inbox)(nil)

// Drain moves entries into the queue until that is full. It leaves that to whoever is at it: another reader, or ourselves, when
// the queue's hook reads while TryPush runs. A reader that parks called Arm before, so that who is at it now
// knows of it and will not leave an entry behind without asking for frameWake.
func (b *inbox) Drain() {
	if !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	if b.stopped {
		b.drainLate()
		return
	}
	took := b.drainRing()
	if took && b.ring.producerWaits() {
		b.tell(frameSpace)
	}
}

// drainRing leaves the ring either empty, with the producer asked to wake the readers that are parked, or with the queue full.
func (b *inbox) drainRing() (took bool) {
	asked := false
	for {
		data, length, ok, err := b.ring.next()
		switch {
		case err != nil:
			b.fail(err)
			return took
		case !ok && (asked || b.armed == 0):
			return took
		case !ok:
			b.ring.wait()
			asked = true
		case !b.cq.TryPush(remoteWrite(data, length)):
			return took
		default:
			b.ring.take()
			took = true
		}
	}
}

func remoteWrite(data, length uint64) fabric.Completion {
	return fabric.Completion{Kind: fabric.OpRemoteWrite, Flags: fabric.OpRemoteData, Len: length, Data: data}
}

func (b *inbox) drainLate() {
	for len(b.late) > 0 && b.cq.TryPush(b.late[0]) {
		b.late = b.late[1:]
	}
	if len(b.late) == 0 {
		b.late = nil
		b.cq.RemoveSource(b)
	}
}

// wake makes parked readers look again.
func (b *inbox) wake() { b.cq.Wake() }

// Arm counts the readers that are parked; see util.Source.
func (b *inbox) Arm(parking bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !parking {
		b.armed--
		return
	}
	b.armed++
	if !b.stopped {
		b.ring.wait()
	}
}

// stop takes everything out of the ring, whose memory goes. What the queue has no place for waits here for its readers.
func (b *inbox) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	for range ringEntries { // and not for as long as a peer likes
		data, length, ok, err := b.ring.next()
		if !ok || err != nil {
			break
		}
		b.ring.take()
		b.late = append(b.late, remoteWrite(data, length))
	}
	b.drainLate()
}
