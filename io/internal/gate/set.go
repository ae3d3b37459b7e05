// SPDX-License-Identifier: MIT

package gate

import (
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"mori/core/device"
	"mori/core/memory"
)

// A Set has the gates of an engine. One goroutine polls the driver for all of them. It runs only
// while gates are pending.
type Set struct {
	Log *slog.Logger // set before use

	mu      sync.Mutex
	free    map[*device.Device][]*Gate // for reuse
	pending []*Gate                    // oldest first
	running chan struct{}              // closed when the goroutine has ended; nil if it does not run
	closed  bool

	news memory.ParkWord // changes when a gate is added, and ends the goroutine's naps
}

// maxFree is how many gates per device are kept for reuse.
const maxFree = 64

// The goroutine first polls without pauses, as short kernels finish within that time. Then it naps
// between polls, for longer each time.
const (
	spin       = 50 * time.Microsecond
	firstPause = 5 * time.Microsecond
	lastPause  = 200 * time.Microsecond
)

// Arm returns a gate for a, nil if a was already reached. The caller passes it to Watch or Release.
func (s *Set) Arm(a After) (*Gate, error) {
	on := a.device()
	if a.event != nil {
		if done, err := a.event.Done(); done || err != nil {
			return nil, err
		}
	}
	g := s.take(on)
	if g == nil {
		e, err := on.NewEvent()
		if err != nil {
			return nil, err
		}
		g = &Gate{event: e}
	}
	err := g.record(a)
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (s *Set) take(on *device.Device) *Gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.free[on]
	if len(all) == 0 {
		return nil
	}
	s.free[on] = all[:len(all)-1]
	return all[len(all)-1]
}

// Release returns a gate that has happened, or that nothing waits for any more.
func (s *Set) Release(g *Gate, happened bool) error {
	g.waiter = nil
	s.mu.Lock()
	on := g.event.Device()
	keep := happened && !s.closed && len(s.free[on]) < maxFree
	if keep {
		if s.free == nil {
			s.free = map[*device.Device][]*Gate{}
		}
		s.free[on] = append(s.free[on], g)
	}
	s.mu.Unlock()
	if keep {
		return nil
	}
	return g.close()
}

// Watch opens w when g happens.
func (s *Set) Watch(g *Gate, w Waiter) {
	g.waiter = w
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, g)
	if s.running == nil {
		s.running = make(chan struct{})
		go s.poll(s.running)
		return
	}
	s.kick()
}

// kick makes the goroutine poll immediately.
func (s *Set) kick() {
	s.news.Value.Add(1)
	s.news.Wake()
}

func (s *Set) poll(ended chan struct{}) {
	defer close(ended)
	start, pause := time.Now(), firstPause
	for {
		seen := s.news.Value.Load()
		left, opened := s.look()
		if left == 0 {
			return
		}
		if opened {
			start, pause = time.Now(), firstPause
		}
		if time.Since(start) < spin {
			runtime.Gosched()
			continue
		}
		if s.news.Park(seen, pause); s.news.Value.Load() != seen {
			start, pause = time.Now(), firstPause
		} else {
			pause = min(2*pause, lastPause)
		}
	}
}

// look polls every gate once and returns how many are left. After 0, the caller ends.
func (s *Set) look() (left int, opened bool) {
	s.mu.Lock()
	all := slices.Clone(s.pending)
	s.mu.Unlock()
	over := map[*Gate]openedGate{}
	for _, g := range all {
		o := openedGate{}
		if g.waiter.Waits() {
			if o.happened, o.err = g.event.Done(); !o.happened && o.err == nil {
				continue
			}
		}
		over[g] = o
	}
	// Remove the gates from pending before they are released. A released gate may be reused at
	// once, and is then pending for another transfer.
	s.mu.Lock()
	s.pending = slices.DeleteFunc(s.pending, func(g *Gate) bool { _, is := over[g]; return is })
	s.mu.Unlock()
	for _, g := range all {
		if o, is := over[g]; is {
			s.open(g, o)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		s.running = nil
	}
	return len(s.pending), len(over) > 0
}

// An openedGate is the reason why a gate left the pending list: it happened, the GPU reported an
// error, or its waiter gave up.
type openedGate struct {
	happened bool
	err      error
}

func (s *Set) open(g *Gate, o openedGate) {
	w := g.waiter
	if err := s.Release(g, o.happened); err != nil {
		s.Log.Warn("gate of a transfer", "error", err)
	}
	w.Open(o.err)
}

// Close frees the gates. No waiter may be left.
func (s *Set) Close() error {
	s.mu.Lock()
	s.closed = true
	running := s.running
	s.mu.Unlock()
	if running != nil {
		s.kick()
		<-running
	}
	s.mu.Lock()
	free := s.free
	s.free = nil
	s.mu.Unlock()
	var all error
	for _, gates := range free {
		for _, g := range gates {
			all = errors.Join(all, g.close())
		}
	}
	return all
}
