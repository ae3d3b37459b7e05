// SPDX-License-Identifier: MIT

package proxy

import (
	"sync/atomic"

	"mori/core/fabric"
)

// Executors is the number of concurrent calls of Config.Atomics. Each launches a kernel, for
// example, and waits for it.
const Executors = 4

// A job is a request of a peer, with its reply.
type job struct {
	reply
	change Change
}

// An executor executes the requests of peers on its own goroutines. The queue's thread adds jobs
// and collects replies.
type executor struct {
	atomics func(Change) (old uint64, err error)
	stopped *atomic.Bool // jobs that have not started fail
	notify  func()       // called when there is a reply

	jobs    chan job
	replies chan reply
	idle    chan struct{} // closed when the last goroutine has ended
}

// newExecutor starts the goroutines. close ends them.
func newExecutor(atomics func(Change) (uint64, error), stopped *atomic.Bool, notify func()) *executor {
	e := &executor{atomics: atomics, stopped: stopped, notify: notify,
		jobs: make(chan job, serverEntries), replies: make(chan reply, serverEntries), idle: make(chan struct{})}
	var running atomic.Int32
	running.Store(Executors)
	for range Executors {
		go func() {
			for j := range e.jobs {
				e.execute(&j)
				e.replies <- j.reply
				e.notify()
			}
			if running.Add(-1) == 0 {
				close(e.idle)
			}
		}()
	}
	return e
}

// add queues a job. It returns false if more jobs arrived than all peers have slots for.
func (e *executor) add(j job) bool {
	select {
	case e.jobs <- j:
		return true
	default:
		return false
	}
}

func (e *executor) execute(j *job) {
	if e.stopped.Load() {
		j.status = uint32(fabric.ErrClosed)
		return
	}
	old, err := e.atomics(j.change)
	if err != nil {
		j.status = statusOf(err)
	}
	j.old = old
}

// close waits for the last job, and drops the replies.
func (e *executor) close() {
	close(e.jobs)
	for {
		select {
		case <-e.replies:
		case <-e.idle:
			return
		}
	}
}
