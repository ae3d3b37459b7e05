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
	// sliceBytes is how many bytes a worker copies between two checks for cancel and revoke.
	sliceBytes = 1 << 20

	// bestOp is the op size in bytes that lets all workers share a transfer at a negligible cost
	// per op.
	bestOp = 8 << 20

	// lingerTime is how long a worker that ran out of jobs yields before it parks. One worker at a
	// time does so. Waking a parked worker takes tens of microseconds on a virtual machine, and the
	// submitter pays part of that. From Python on 2 cores, batch_write of 1000 x 4 KiB returns
	// after 62 to 75 us with a parked worker, and after 36 to 50 us with a lingering one. 1024 x 4
	// KiB are moved at 0.80 to 0.85 and at 0.83 to 1.07 of raw.
	lingerTime = 150 * time.Microsecond

	// maxWorkers bounds the copy workers of a domain: more would not get more memory bandwidth.
	maxWorkers = 4
)

// A job is an RMA op, or a message, that workers copy in slices.
type job struct {
	next *job // in the pool's queue, or in the endpoint's list of free jobs
	walk walk

	flying int   // slices being copied; used by the pool
	err    error // the first error; used by the pool

	abandoned bool // ended while workers still copied slices of it

	path   copier
	ticket conn.Ticket
	op     *fabric.Op
	grant  *regionGrant // nil if the job pulls a message
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

// A copier does the copies of jobs; tests replace it.
type copier interface {
	// copyJob copies one slice.
	copyJob(j *job, s *slice) error
	// finishJob is called once, with no locks held. The copier owns j again.
	finishJob(j *job, err error)
}

// A pool copies jobs in order of arrival, several slices at a time. Workers start with the first
// job and park when there are no jobs.
type pool struct {
	mu      sync.Mutex
	wake    sync.Cond // on mu: head is set, or closed
	head    *job      // jobs with bytes not yet assigned to a slice
	tail    *job
	idle    int  // parked workers
	lingers bool // a worker polls for jobs and needs no wakeup
	started int
	workers []*worker // workers that are copying
	limit   int       // maximum number of workers
	slice   uint64    // maximum bytes of a slice
	closed  bool
	wg      sync.WaitGroup

	jobs atomic.Int32 // queued jobs; the lingering worker reads it without mu
}

func newPool() *pool {
	p := &pool{limit: min(maxWorkers, runtime.NumCPU()), slice: sliceBytes}
	p.wake.L = &p.mu
	return p
}

// add queues j, which must have at least one byte.
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

// callWorker wakes or starts one more worker, if possible and if no worker lingers. The caller
// holds mu.
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

// A worker is the pool's record of a goroutine that copies.
type worker struct {
	job  *job
	lost *sync.WaitGroup // if set, the copy was abandoned, and only this group waits for it
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

// linger waits a short time for a job without parking, and yields its processor repeatedly. The
// caller holds mu; linger releases it in the meantime. A goroutine that adds a job before linger
// locks mu again sees lingers and wakes no worker.
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

// copySlice takes the next slice of j, the head of the queue, and copies it. It releases mu during
// the copy.
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

// fail ends j with err. Bytes not yet assigned to a slice are not copied. The caller holds mu.
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

// unlink removes j, which follows before, from the queue. The caller holds mu.
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

// cancel ends every job of one data path with err. Slices in progress continue; finishJob is called
// when they have ended.
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

// abandon ends with err the jobs of one data path that still have a slice in progress. Call it
// after cancel. Other workers replace those that are stuck. The copies may block for as long as a
// page fault is not served. The returned group reports when they have ended.
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

// close stops the workers. No job may be left.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.wake.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}
