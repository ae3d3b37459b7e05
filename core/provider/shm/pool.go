// SPDX-License-Identifier: MIT

package shm

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys/thread"
	"mori/core/provider/internal/conn"
)

// Measured on 2 cores of an EPYC VM, 128 MiB to and from another process, GB/s, best of 5:
//
//	             plain loop of 1 MiB   1 worker            2 workers
//	slice        -                     256K  1M   4M       256K  1M   4M
//	read         5.1                   5.2   5.2  4.8      6.5   7.5  7.6
//	write        5.0                   4.7   4.8  5.2      6.6   7.8  8.9
const (
	// sliceBytes is what a worker moves between two looks at cancel and revoke.
	sliceBytes = 1 << 20

	// bestOp is the op that lets all workers share a transfer without a cost per op that shows.
	bestOp = 8 << 20

	// lingerTime is how long a worker that ran out of jobs yields before it parks; one worker at a
	// time does. Waking a parked one takes tens of microseconds on a virtual machine, and a part of
	// that is the submitter's. From Python on 2 cores, parked and lingering: batch_write of 1000 x
	// 4 KiB returns after 62 to 75 and 36 to 50 us, 1024 x 4 KiB is moved at 0.80 to 0.85 and 0.83
	// to 1.07 of raw.
	lingerTime = 150 * time.Microsecond

	// maxWorkers bounds the copy workers of a domain: memory bandwidth is used up by then.
	maxWorkers = 4
)

// A job is an RMA op, or a message, that workers copy in slices.
type job struct {
	next *job // in the pool's queue, or the endpoint's list of free jobs
	walk walk

	flying int   // slices being copied; the pool's
	err    error // the first; the pool's

	abandoned bool // it was ended while workers had slices of it, which are not waited for

	path   copier
	ticket conn.Ticket
	op     *fabric.Op
	grant  *regionGrant // nil: a message that is pulled
}

// A jobs keeps the jobs of one data path for reuse.
type jobs struct {
	path copier
	mu   sync.Mutex
	free *job
}

func (js *jobs) take() *job {
	js.mu.Lock()
	j := js.free
	if j != nil {
		js.free, j.next = j.next, nil
	}
	js.mu.Unlock()
	if j == nil {
		j = &job{path: js.path}
	}
	return j
}

// release keeps j for reuse, unless a worker still has it.
func (js *jobs) release(j *job) {
	if j.abandoned {
		return
	}
	*j = job{path: js.path}
	js.mu.Lock()
	j.next, js.free = js.free, j
	js.mu.Unlock()
}

// A copier does what jobs are about; tests replace it.
type copier interface {
	// copyJob moves one slice.
	copyJob(j *job, s *slice) error
	// finishJob is called once, without locks. j is the copier's again.
	finishJob(j *job, err error)
}

// A pool copies jobs in order of arrival, several slices at a time. Workers start with the first
// job and park when there is none.
type pool struct {
	mu      sync.Mutex
	wake    sync.Cond // on mu: something in head, or closed
	head    *job      // jobs with bytes not yet handed out
	tail    *job
	idle    int  // workers parked
	lingers bool // a worker looks for jobs without being woken
	started int
	workers []*worker // that copy
	limit   int       // most workers
	slice   uint64    // most bytes of a slice
	closed  bool
	wg      sync.WaitGroup

	jobs atomic.Int32 // in the queue; read by who lingers, without mu
}

func newPool() *pool {
	p := &pool{limit: min(maxWorkers, runtime.NumCPU()), slice: sliceBytes}
	p.wake.L = &p.mu
	return p
}

// add queues j, which has at least one byte.
func (p *pool) add(j *job) {
	p.mu.Lock()
	if p.head == nil {
		p.head = j
	} else {
		p.tail.next = j
	}
	p.tail = j
	p.jobs.Add(1)
	p.callWorker()
	p.mu.Unlock()
}

// callWorker wakes or starts one more worker, if there is one and none lingers. With mu held.
func (p *pool) callWorker() {
	switch {
	case p.lingers:
	case p.idle > 0:
		p.wake.Signal()
	case p.started < p.limit:
		p.started++
		p.wg.Add(1)
		go p.work()
	}
}

// A worker is what the pool knows of a goroutine that copies.
type worker struct {
	job  *job
	lost *sync.WaitGroup // not nil: its copy is not waited for any more, but by this
}

func (p *pool) work() {
	w, s := &worker{}, newSlice()
	p.mu.Lock()
	defer func() {
		p.mu.Unlock()
		if w.lost != nil {
			w.lost.Done()
		} else {
			p.wg.Done()
		}
	}()
	for {
		lingered := false
		for p.head == nil {
			if p.closed {
				return
			}
			if !lingered && !p.lingers {
				p.linger()
				lingered = true
				continue
			}
			p.idle++
			p.wake.Wait()
			p.idle--
		}
		if p.copySlice(w, p.head, s); w.lost != nil {
			return
		}
	}
}

// linger waits a while for a job without parking, and yields its processor repeatedly. mu is held,
// but released meanwhile: a goroutine that adds a job before it is taken again sees lingers and
// wakes no worker.
func (p *pool) linger() {
	p.lingers = true
	p.mu.Unlock()
	for end := time.Now().Add(lingerTime); p.jobs.Load() == 0 && time.Now().Before(end); {
		runtime.Gosched()
		thread.Yield()
	}
	p.mu.Lock()
	p.lingers = false
}

// copySlice takes the next slice of j, which is the head, and moves it. mu is released meanwhile.
func (p *pool) copySlice(w *worker, j *job, s *slice) {
	j.walk.next(s, p.slice)
	w.job = j
	p.workers = append(p.workers, w)
	j.flying++
	if j.walk.left == 0 {
		p.unlink(nil, j)
	}
	if p.head != nil {
		p.callWorker()
	}
	p.mu.Unlock()
	err := j.path.copyJob(j, s)
	p.mu.Lock()
	if w.lost != nil {
		return
	}
	w.job = nil
	p.workers = slices.DeleteFunc(p.workers, func(o *worker) bool { return o == w })
	j.flying--
	if err != nil {
		p.fail(j, err)
	}
	if j.flying == 0 && j.walk.left == 0 {
		err = j.err
		p.mu.Unlock()
		j.path.finishJob(j, err)
		p.mu.Lock()
	}
}

// fail ends j with err: what was not handed out yet stays undone. With mu held.
func (p *pool) fail(j *job, err error) {
	if j.err == nil {
		j.err = err
	}
	if j.walk.left == 0 {
		return
	}
	j.walk.left = 0
	var before *job
	for q := p.head; q != j; q = q.next {
		before = q
	}
	p.unlink(before, j)
}

// unlink takes j, which follows before, out of the queue. With mu held.
func (p *pool) unlink(before, j *job) {
	p.jobs.Add(-1)
	if before == nil {
		p.head = j.next
	} else {
		before.next = j.next
	}
	if p.tail == j {
		p.tail = before
	}
	j.next = nil
}

// cancel ends with err every job of one data path. Slices under way go on: finishJob reports when
// they are over.
func (p *pool) cancel(whose copier, err error) {
	var over *job
	p.mu.Lock()
	for j := p.head; j != nil; {
		next := j.next
		if j.path == whose {
			p.fail(j, err)
			if j.flying == 0 {
				j.next, over = over, j
			}
		}
		j = next
	}
	p.mu.Unlock()
	for over != nil {
		j := over
		over, j.next = j.next, nil
		j.path.finishJob(j, j.err)
	}
}

// abandon ends with err the jobs of one data path of which a slice is being copied, after cancel,
// and others take the place of their workers. The copies may go on for as long as a page does not
// come; the group reports when they are over.
func (p *pool) abandon(whose copier, err error) *sync.WaitGroup {
	var over []*job
	left := new(sync.WaitGroup)
	p.mu.Lock()
	p.workers = slices.DeleteFunc(p.workers, func(w *worker) bool {
		j := w.job
		if j.path != whose {
			return false
		}
		if !j.abandoned {
			j.abandoned = true
			over = append(over, j)
		}
		left.Add(1)
		w.lost = left
		p.started--
		p.wg.Done()
		return true
	})
	if p.head != nil {
		p.callWorker()
	}
	p.mu.Unlock()
	for _, j := range over {
		j.path.finishJob(j, err)
	}
	return left
}

// close stops the workers, once no job is left.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.wake.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}
