// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/device"
	"mori/core/memory"
)

const (
	// depth is how many copies of a device are under way at once; further ones wait here.
	depth = 32

	// Who looks whether copies have ended spins while it expects one to, from spinEarly before on,
	// for spinFor: a sleep on Linux takes 60 us at least. Behind that it looks every so often:
	// after a 32nd of the time that passed. It naps for longNap at most, whatever it expects:
	// copies that follow others of another size or another number beside them are expected wrongly.
	// With 2 ms a write of 256 MiB between H200s, alone after some with three others beside them,
	// took 1.6 ms more than its copy; a look costs a microsecond.
	spinEarly = 80 * time.Microsecond
	spinFor   = 60 * time.Microsecond
	overdue   = 32
	shortNap  = 60 * time.Microsecond
	longNap   = 100 * time.Microsecond

	// lingerTime is how long the one who looks goes on looking when nothing is under way: waking it
	// takes as long as a small copy.
	lingerTime = 40 * time.Microsecond
)

// A lander is notified of the end of a flight, once, without locks; the flight is its again.
type lander interface {
	landed(f *flight, err error)
}

// An engine copies for the data paths of a domain, with a Copier for each device. One goroutine
// looks after the copies under way; it is parked while there are none.
type engine struct {
	blocks int
	log    *slog.Logger

	mu       sync.Mutex
	lanes    map[way]*lane
	incoming []*flight // started, not yet seen by run
	waiting  int       // in the lanes' queues
	retry    bool      // somebody was queued: there may be room by now
	parked   bool
	closing  bool // no lane is made any more
	closed   bool // run ends when nothing is under way
	hung     bool // or at once, as a device does not end its copies
	started  bool

	news  memory.ParkWord // changed to end a nap of run
	wake  chan struct{}   // ends its parking
	ended chan struct{}
}

// A way is what copies share a link on: those of one device that read, or those that write.
type way struct {
	dev   *device.Device
	reads bool
}

// A lane is how a device copies one way.
type lane struct {
	copier *device.Copier
	queue  []*flight    // wait for room in the copier; under engine.mu
	flying atomic.Int32 // copies that have begun and were not seen to end

	// Of run.
	nsPerByte float64   // of copies lately
	missed    bool      // the last one had ended before it was looked at
	under     uint64    // bytes of the copies under way
	ended     time.Time // when the last one was seen to end
}

func newEngine(blocks int, log *slog.Logger) *engine {
	return &engine{blocks: blocks, log: log, lanes: make(map[way]*lane), wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// laneOf is the lane of a way if it was made.
func (e *engine) laneOf(w way) *lane {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lanes[w]
}

// openLane is laneOf that makes it, which takes the time of a driver's calls.
func (e *engine) openLane(w way) (*lane, error) {
	if ln := e.laneOf(w); ln != nil {
		return ln, nil
	}
	c, err := w.dev.NewCopier(device.CopierOptions{Depth: depth, Blocks: e.blocks, InOrder: e.blocks > 0})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ln := e.lanes[w]; ln != nil {
		return ln, c.Close()
	}
	if e.closing {
		return nil, errors.Join(device.ErrClosed, c.Close())
	}
	if why := c.NoKernel(); why != nil {
		e.log.Warn("p2p: scattered pieces are copied one by one, which is slow", "device", w.dev, "why", why)
	}
	ln := &lane{copier: c}
	e.lanes[w] = ln
	return ln, nil
}

// wakeUp wakes the one who looks, ahead of a launch that takes as long as the waking.
func (e *engine) wakeUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started && !e.closing {
		e.started = true
		go e.run()
	}
	e.nudge()
}

// nudge ends parking. With mu held.
func (e *engine) nudge() {
	if e.parked {
		e.parked = false
		e.wake <- struct{}{} // run takes it before it parks again
	}
}

// start begins the copy of f on its lane, or queues it. An error means that nothing is copied and
// landed is not called.
func (e *engine) start(f *flight) error {
	e.wakeUp()
	f.begun = time.Now()
	e.mu.Lock()
	behind := len(f.lane.queue) > 0
	e.mu.Unlock()
	err := device.ErrBusy
	if !behind {
		f.copy, err = f.start()
	}
	if err != nil && !errors.Is(err, device.ErrBusy) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		f.lane.queue = append(f.lane.queue, f)
		e.waiting++
		e.retry = true
	} else {
		e.incoming = append(e.incoming, f)
	}
	e.nudge()
	// A long copy comes to its end behind those that are under way, long after who looks has: there
	// is no need to wake it for that.
	if first := f.lane.flying.Add(1) == 1; first || err != nil || f.bytes < leastBytes {
		e.endNap()
	}
	return nil
}

func (e *engine) endNap() {
	e.news.Value.Add(1)
	e.news.Wake()
}

// cancel lands what waits for room and is m's with err.
func (e *engine) cancel(whose lander, err error) {
	var out []*flight
	e.mu.Lock()
	for _, ln := range e.lanes {
		kept := ln.queue[:0]
		for _, f := range ln.queue {
			if f.owner == whose {
				out = append(out, f)
				e.waiting--
				ln.flying.Add(-1)
			} else {
				kept = append(kept, f)
			}
		}
		ln.queue = kept
	}
	e.mu.Unlock()
	for _, f := range out {
		f.owner.landed(f, err)
	}
}

// run looks after the copies until the engine closes.
func (e *engine) run() {
	defer close(e.ended)
	var active []*flight
	progress := time.Now()
	for {
		var ok bool
		if active, ok = e.board(active, progress); !ok {
			return
		}
		now := time.Now()
		landed, nap := false, longNap
		for i := 0; i < len(active); {
			f := active[i]
			done, err := f.copy.Done()
			if !done && err == nil {
				nap = min(nap, f.nap(now))
				i++
				continue
			}
			active[i] = active[len(active)-1]
			active = active[:len(active)-1]
			f.measured(now, err)
			f.owner.landed(f, err)
			landed = true
		}
		switch {
		case e.refill(landed || len(active) == 0), landed:
			progress = now
		case len(active) == 0 || nap < shortNap:
			runtime.Gosched()
		default:
			e.sleep(nap)
			progress = time.Now()
		}
	}
}

// board adds what was started to active. With nothing to look after since progress it parks, and
// reports false once the engine is closed.
func (e *engine) board(active []*flight, progress time.Time) ([]*flight, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(active) == 0 && len(e.incoming) == 0 && e.waiting == 0 && !e.closed {
		if time.Since(progress) < lingerTime {
			return active, true
		}
		e.parked = true
		e.mu.Unlock()
		<-e.wake
		e.mu.Lock()
		progress = time.Now()
	}
	if e.hung || e.closed && len(active) == 0 && len(e.incoming) == 0 {
		return nil, false
	}
	for _, f := range e.incoming {
		f.expect()
		active = append(active, f)
	}
	clear(e.incoming)
	e.incoming = e.incoming[:0]
	return active, true
}

// sleep naps until somebody starts a copy, or for a time.
func (e *engine) sleep(nap time.Duration) {
	seen := e.news.Value.Load()
	e.mu.Lock()
	news := len(e.incoming) > 0 || e.retry || e.closed
	e.mu.Unlock()
	if !news {
		e.news.Park(seen, nap)
	}
}

// refill starts what waits for room, if there may be some, and reports whether it started any.
func (e *engine) refill(room bool) (any bool) {
	e.mu.Lock()
	room = (room || e.retry) && e.waiting > 0
	e.retry = false
	var lanes []*lane
	if room {
		for _, ln := range e.lanes {
			lanes = append(lanes, ln)
		}
	}
	e.mu.Unlock()
	for _, ln := range lanes {
		for e.startNext(ln) {
			any = true
		}
	}
	return any
}

// startNext starts the first of a lane's queue, and reports whether it is out of it.
func (e *engine) startNext(ln *lane) bool {
	e.mu.Lock()
	if len(ln.queue) == 0 {
		e.mu.Unlock()
		return false
	}
	f := ln.queue[0]
	c, err := f.start()
	busy := errors.Is(err, device.ErrBusy)
	if !busy {
		ln.queue = ln.queue[:copy(ln.queue, ln.queue[1:])]
		e.waiting--
	}
	if err == nil {
		f.copy, f.begun = c, time.Now()
		e.incoming = append(e.incoming, f)
	}
	e.mu.Unlock()
	if err != nil && !busy {
		ln.flying.Add(-1)
		f.owner.landed(f, err)
	}
	return !busy
}

// close ends the engine, whose flights have landed, but for those that a device does not end: then
// what they touch stays.
func (e *engine) close() {
	e.mu.Lock()
	e.closing = true
	started, lanes := e.started, e.lanes
	e.mu.Unlock()
	hung := false
	for w, ln := range lanes {
		if err := ln.copier.Close(); err != nil {
			hung = true
			e.log.Error("p2p: end the copies of a device", "device", w.dev, "error", err)
		}
	}
	e.mu.Lock()
	e.closed, e.hung = true, hung
	e.nudge()
	e.endNap()
	e.mu.Unlock()
	if started {
		<-e.ended
	}
}
