// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"sync"
)

// A sendQueue has the frames that are to be sent, in order. To send may end and begin ops on the same goroutine, so it is done without
// locks: who posts under one flushes after it.
type sendQueue struct {
	mu     sync.Mutex
	frames []frame
	busy   bool // somebody is sending, and sees to what comes meanwhile
}

type frame struct {
	kind uint8
	body []byte
}

// post queues a frame, whose body is the queue's.
func (m *mover) post(kind uint8, body []byte) {
	q := &m.out
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frames = append(q.frames, frame{kind, body})
}

// flush sends what was posted. No lock is held.
func (m *mover) flush() {
	q := &m.out
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy {
		return
	}
	q.busy = true
	for len(q.frames) > 0 {
		frames := q.frames
		q.frames = nil
		q.mu.Unlock()
		for _, f := range frames {
			m.send(f)
		}
		q.mu.Lock()
	}
	q.busy = false
}

// send sends a frame; a peer that lets a megabyte of them pile up is not alive.
func (m *mover) send(f frame) {
	if err := m.ep.SendFrame(f.kind, f.body); err != nil && !m.isStopped() {
		m.ep.Fail(fmt.Errorf("send p2p frame of kind %d: %w", f.kind, err))
	}
}
