// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"mori/core/device"
	"mori/core/memory"
)

// An After holds a transfer back until a GPU has come so far. The zero value holds nothing back.
type After struct {
	event  *device.Event
	stream *device.Stream
}

// AfterEvent begins when e has happened, as it was recorded last at the time of the call; e may be
// recorded again or destroyed after that.
func AfterEvent(e *device.Event) After { return After{event: e} }

// AfterStream begins when s has done what it was given before the call.
func AfterStream(s *device.Stream) After { return After{stream: s} }

// A gate is what a transfer waits for, as an event of our own: the caller's may be gone when
// somebody looks.
type gate struct {
	event  *device.Event
	stream *device.Stream // waits for the caller's event; nil: never had to
	t      *transfer
}

func (g *gate) close() error {
	err := g.event.Close()
	if g.stream != nil {
		err = errors.Join(g.stream.Close(), err)
	}
	return err
}

// arm lets g happen when a does.
func (g *gate) arm(a After) error {
	if a.stream != nil {
		return g.event.Record(a.stream)
	}
	if g.stream == nil {
		s, err := a.event.Device().NewStream(device.Normal)
		if err != nil {
			return err
		}
		g.stream = s
	}
	if err := g.stream.After(a.event); err != nil {
		return err
	}
	return g.event.Record(g.stream)
}

// gates are those of an engine. One goroutine, which runs only while there are some, asks the
// driver about all of them.
type gates struct {
	mu      sync.Mutex
	free    map[*device.Device][]*gate
	pending []*gate       // oldest first
	running chan struct{} // closed when the goroutine has ended; nil: there is none
	closed  bool

	news memory.ParkWord // changes when there is one more, and ends the goroutine's naps
}

// maxFreeGates is how many gates of a device are kept for reuse.
const maxFreeGates = 64

// Asking without a pause first, as short kernels are done by then, and then with pauses that grow.
const (
	gateSpin       = 50 * time.Microsecond
	gateFirstPause = 5 * time.Microsecond
	gateLastPause  = 200 * time.Microsecond
)

// arm makes a gate for a, nil if a has happened already.
func (s *gates) arm(a After) (*gate, error) {
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
		g = &gate{event: e}
	}
	err := g.arm(a)
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (a After) device() *device.Device {
	if a.stream != nil {
		return a.stream.Device()
	}
	return a.event.Device()
}

func (s *gates) take(on *device.Device) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.free[on]
	if len(all) == 0 {
		return nil
	}
	s.free[on] = all[:len(all)-1]
	return all[len(all)-1]
}

// give takes back a gate that has happened, or that nobody waits for.
func (s *gates) give(g *gate, happened bool) error {
	g.t = nil
	s.mu.Lock()
	on := g.event.Device()
	keep := happened && !s.closed && len(s.free[on]) < maxFreeGates
	if keep {
		if s.free == nil {
			s.free = map[*device.Device][]*gate{}
		}
		s.free[on] = append(s.free[on], g)
	}
	s.mu.Unlock()
	if keep {
		return nil
	}
	return g.close()
}

// watch lets the transfer of g go on when g happens.
func (s *gates) watch(g *gate) {
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

// kick has the goroutine look at once.
func (s *gates) kick() {
	s.news.Value.Add(1)
	s.news.Wake()
}

func (s *gates) poll(ended chan struct{}) {
	defer close(ended)
	start, pause := time.Now(), gateFirstPause
	for {
		seen := s.news.Value.Load()
		left, opened := s.look()
		if left == 0 {
			return
		}
		if opened {
			start, pause = time.Now(), gateFirstPause
		}
		if time.Since(start) < gateSpin {
			runtime.Gosched()
			continue
		}
		if s.news.Park(seen, pause); s.news.Value.Load() != seen {
			start, pause = time.Now(), gateFirstPause
		} else {
			pause = min(2*pause, gateLastPause)
		}
	}
}

// look asks about every gate once. It returns how many are left; after 0 the caller ends.
func (s *gates) look() (left int, opened bool) {
	s.mu.Lock()
	all := slices.Clone(s.pending)
	s.mu.Unlock()
	over := map[*gate]openedGate{}
	for _, g := range all {
		o := openedGate{}
		if g.t.session.peer.parked.has(g.t) {
			if o.happened, o.err = g.event.Done(); !o.happened && o.err == nil {
				continue
			}
		}
		over[g] = o
	}
	// Nothing is pending any more when its gate is given back: whoever takes it then has it pending
	// for another transfer.
	s.mu.Lock()
	s.pending = slices.DeleteFunc(s.pending, func(g *gate) bool { _, is := over[g]; return is })
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

// An openedGate says why nobody waits for a gate any more: it has happened, the GPU told an error,
// or the transfer has ended.
type openedGate struct {
	happened bool
	err      error
}

func (s *gates) open(g *gate, o openedGate) {
	t := g.t
	if err := s.give(g, o.happened); err != nil {
		t.session.engine.self.Log.Warn("gate of a transfer", "error", err)
	}
	t.pass(o.err)
}

// close needs all transfers of the engine ended.
func (s *gates) close() error {
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

// hold parks t, which has its place in the order already, until g happens.
func (p *peer) hold(g *gate, t *transfer) {
	g.t = t
	t.gated.Store(true)
	if closed := p.parked.add(t); closed != nil {
		t.fail(errors.Join(closed, p.engine.gates.give(g, false)))
		t.end()
		return
	}
	p.engine.gates.watch(g)
}

// pass lets t begin, unless it has ended meanwhile.
func (t *transfer) pass(err error) {
	if !t.session.peer.parked.take(t) {
		return
	}
	t.gated.Store(false)
	if err != nil {
		t.fail(afterFailed(err))
	}
	q := t.path.Load()
	switch {
	case t.failure() != nil:
		t.end()
	case q.err() != nil:
		t.session.peer.replays.replay(q, []*transfer{t})
	default:
		q.start(t)
	}
}

func afterFailed(err error) error {
	return fmt.Errorf("what the transfer had to wait for: %w (%w)", err, ErrGPU)
}
