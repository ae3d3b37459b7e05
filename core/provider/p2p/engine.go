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
	// depth is the most copies of a device in progress at once. Further copies wait in the lane's
	// queue.
	depth = 32

	// The poller spins from spinEarly before the expected end of a copy until spinFor after it, since
	// a sleep on Linux takes at least 60 us. After that it polls each time another 32nd of the copy's
	// duration has passed. It naps for at most longNap, because the expectation is wrong when the size
	// or the number of copies changes. With 2 ms, a write of 256 MiB between H200s took 1.6 ms longer
	// than its copy when it ran alone after some with three others beside them. A poll costs a
	// microsecond.
	spinEarly = 80 * time.Microsecond
	spinFor   = 60 * time.Microsecond
	overdue   = 32
	shortNap  = 60 * time.Microsecond
	longNap   = 100 * time.Microsecond

	// lingerTime is how long the poller keeps polling without copies in progress, because waking it
	// takes as long as a small copy.
	lingerTime = 40 * time.Microsecond
)

// An engine copies for the data paths of a domain, with two lanes for each device. Its poller, the
// goroutine of run, polls the copies in progress, and is parked while there are none.
type engine struct {
	blocks int
	log    *slog.Logger

	mu       sync.Mutex
	lanes    map[direction]*lane
	incoming []*copyJob // started, not yet seen by run
	waiting  int        // in the lanes' queues
	retry    bool       // a copy was queued; it may fit now
	parked   bool
	closing  bool // no new lanes
	closed   bool // run returns when no copy is in progress
	hung     bool // run returns immediately, since a device does not end its copies
	started  bool

	news  memory.ParkWord // changed to end a nap of run
	wake  chan struct{}   // ends the parking of run
	ended chan struct{}
}

func newEngine(blocks int, log *slog.Logger) *engine {
	return &engine{blocks: blocks, log: log, lanes: make(map[direction]*lane), wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// laneOf returns the lane of a direction, or nil.
func (e *engine) laneOf(way direction) *lane {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lanes[way]
}

// openLane returns the lane of a direction, and makes it if necessary, which calls the driver.
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

// wakeUp wakes the poller before a launch, which takes as long as the wake-up.
func (e *engine) wakeUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started && !e.closing {
		e.started = true
		go e.run()
	}
	e.nudge()
}

// nudge unparks the poller. The caller holds mu.
func (e *engine) nudge() {
	if e.parked {
		e.parked = false
		e.wake <- struct{}{} // run takes it before it parks again
	}
}

// start starts the copy of j on its lane, or queues it. If it returns an error, nothing is copied
// and the owner is not notified.
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
	// A long copy ends after the copies in progress, long after the poller's nap. So the poller need
	// not wake up for it.
	if first := j.lane.flying.Add(1) == 1; first || err != nil || j.bytes < leastBytes {
		e.endNap()
	}
	return nil
}

func (e *engine) endNap() {
	e.news.Value.Add(1)
	e.news.Wake()
}

// cancel ends a group's queued copies.
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

// run is the poller. It completes finished copies until the engine closes.
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

// board adds the started copies to active. It parks if no copy has been in progress since progress.
// It returns false once the engine is closed.
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

// sleep naps for a time, or until a copy is started.
func (e *engine) sleep(nap time.Duration) {
	seen := e.news.Value.Load()
	e.mu.Lock()
	news := len(e.incoming) > 0 || e.retry || e.closed
	e.mu.Unlock()
	if !news {
		e.news.Park(seen, nap)
	}
}

// refill starts queued copies if there may be room. It reports whether it started any.
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

// startNext starts the first copy of a lane's queue, and reports whether it has left the queue.
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

// close stops the engine. Its copies have ended, except those that a device does not end; their
// memory stays mapped.
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
