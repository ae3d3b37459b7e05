// SPDX-License-Identifier: MIT

package grant

import "sync"

// A Sender sends frames in the order in which they were posted. Sending may complete and start
// operations on the same goroutine, so the Sender holds no lock while it sends. A caller that posts
// with a lock held calls Flush after the unlock.
type Sender struct {
	// Send sends a frame and does not block. It owns the body.
	Send func(kind uint8, body []byte)

	mu     sync.Mutex
	frames []posted
	busy   bool // a goroutine is sending, and also sends later posts
}

type posted struct {
	kind uint8
	body []byte
}

// Post queues a frame. The queue owns the body.
func (s *Sender) Post(kind uint8, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, posted{kind, body})
}

// Flush sends what was posted. The caller holds no locks.
func (s *Sender) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return
	}
	s.busy = true
	for len(s.frames) > 0 {
		frames := s.frames
		s.frames = nil
		s.mu.Unlock()
		for _, f := range frames {
			s.Send(f.kind, f.body)
		}
		s.mu.Lock()
	}
	s.busy = false
}
