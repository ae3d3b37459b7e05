// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"mori/core/device"
	"mori/core/memory"
)

const (
	// depth is how many copies of a device are under way at once; further ones wait here.
	depth = 32

	// The poller spins from spinEarly before the expected end of a copy until spinFor after it,
	// since a sleep on Linux takes at least 60 us. After that it looks again each time another 32nd
	// of the copy's time has passed. It naps for longNap at most, because the expectation is wrong
	// when the size or the number of copies changes. With 2 ms a write of 256 MiB between H200s,
	// alone after some with three others beside them, took 1.6 ms more than its copy; a look costs
	// a microsecond.
	spinEarly = 80 * time.Microsecond
	spinFor   = 60 * time.Microsecond
	overdue   = 32
	shortNap  = 60 * time.Microsecond
	longNap   = 100 * time.Microsecond

	// lingerTime is how long the poller keeps looking when nothing is under way: waking it takes as
	// long as a small copy.
	lingerTime = 40 * time.Microsecond
)

// An engine copies for the data paths of a domain, with two lanes for each device. Its poller, the
// goroutine of run, waits for the copies under way, and is parked while there are no copies.
type engine struct {
	blocks int
	log    *slog.Logger

	mu       sync.Mutex
	lanes    map[direction]*lane
	incoming []*copyJob // started, not yet seen by run
	waiting  int        // in the lanes' queues
	retry    bool       // a copy was queued: there may be room by now
	parked   bool
	closing  bool // no lane is made any more
	closed   bool // run returns when nothing is under way
	hung     bool // run returns at once, since a device does not end its copies
	started  bool

	news  memory.ParkWord // changed to end a nap of run
	wake  chan struct{}   // ends the parking of run
	ended chan struct{}
}

func newEngine(blocks int, log *slog.Logger) *engine {
	return &engine{blocks: blocks, log: log, lanes: make(map[direction]*lane), wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// laneOf is the lane of a direction if it was made.
func (e *engine) laneOf(way direction) *lane {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lanes[way]
}

// openLane is laneOf that makes it, which takes the time of a driver's calls.
func (e *engine) openLane(way direction) (*lane, error) {
	if ln := e.laneOf(way); ln != nil {
		return ln, nil
	}
	c, err := way.dev.NewCopier(device.CopierOptions{Depth: depth, Blocks: e.blocks, InOrder: e.blocks > 0})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ln := e.lanes[way]; ln != nil {
		return ln, c.Close()
	}
	if e.closing {
		return nil, errors.Join(device.ErrClosed, c.Close())
	}
	if why := c.NoKernel(); why != nil {
		e.log.Warn("p2p: scattered pieces are copied one by one, which is slow", "device", way.dev, "why", why)
	}
	ln := &lane{copier: c}
	e.lanes[way] = ln
	return ln, nil
}

// wakeUp wakes the poller, ahead of a launch that takes as long as the waking.
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

// start begins the copy of j on its lane, or queues it. An error means that nothing is copied and
// the owner is not notified.
func (e *engine) start(j *copyJob) error {
	e.wakeUp()
	j.begun = time.Now()
	e.mu.Lock()
	behind := len(j.lane.queue) > 0
	e.mu.Unlock()
	err := device.ErrBusy
	if !behind {
		j.copy, err = j.start()
	}
	if err != nil && !errors.Is(err, device.ErrBusy) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		j.lane.queue = append(j.lane.queue, j)
		e.waiting++
		e.retry = true
	} else {
		e.incoming = append(e.incoming, j)
	}
	e.nudge()
	// A long copy ends behind those that are under way, long after the poller's nap. The poller need
	// not wake for it.
	if first := j.lane.flying.Add(1) == 1; first || err != nil || j.bytes < leastBytes {
		e.endNap()
	}
	return nil
}

func (e *engine) endNap() {
	e.news.Value.Add(1)
	e.news.Wake()
}

// cancel ends the copies of a group that wait for room.
func (e *engine) cancel(group any, err error) {
	var out []*copyJob
	e.mu.Lock()
	for _, ln := range e.lanes {
		kept := ln.queue[:0]
		for _, j := range ln.queue {
			if j.group == group {
				out = append(out, j)
				e.waiting--
				ln.flying.Add(-1)
			} else {
				kept = append(kept, j)
			}
		}
		ln.queue = kept
	}
	e.mu.Unlock()
	for _, j := range out {
		j.owner.copied(err)
	}
}

// run is the poller: it ends the copies that are done, until the engine closes.
func (e *engine) run() {
	defer close(e.ended)
	var active []*copyJob
	progress := time.Now()
	for {
		var ok bool
		if active, ok = e.board(active, progress); !ok {
			return
		}
		now := time.Now()
		anyDone, nap := false, longNap
		for i := 0; i < len(active); {
			j := active[i]
			done, err := j.copy.Done()
			if !done && err == nil {
				nap = min(nap, j.nap(now))
				i++
				continue
			}
			active[i] = active[len(active)-1]
			active = active[:len(active)-1]
			j.measured(now, err)
			j.owner.copied(err)
			anyDone = true
		}
		switch {
		case e.refill(anyDone || len(active) == 0), anyDone:
			progress = now
		case len(active) == 0 || nap < shortNap:
			runtime.Gosched()
		default:
			e.sleep(nap)
			progress = time.Now()
		}
	}
}

// board adds the copies that were started to active. If none has been under way since progress it
// parks. It reports false once the engine is closed.
func (e *engine) board(active []*copyJob, progress time.Time) ([]*copyJob, bool) {
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
	for _, j := range e.incoming {
		j.expect()
		active = append(active, j)
	}
	clear(e.incoming)
	e.incoming = e.incoming[:0]
	return active, true
}

// sleep naps until a copy is started, or for a time.
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
	j := ln.queue[0]
	c, err := j.start()
	busy := errors.Is(err, device.ErrBusy)
	if !busy {
		ln.queue = ln.queue[:copy(ln.queue, ln.queue[1:])]
		e.waiting--
	}
	if err == nil {
		j.copy, j.begun = c, time.Now()
		e.incoming = append(e.incoming, j)
	}
	e.mu.Unlock()
	if err != nil && !busy {
		ln.flying.Add(-1)
		j.owner.copied(err)
	}
	return !busy
}

// close ends the engine. Its copies have ended, but for those that a device does not end. What
// those touch stays mapped.
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
