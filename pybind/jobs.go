// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"mori/pybind/handle"
)

// A job is a call that waits for other processes. Python polls it in slices. If Python drops a job,
// its context is canceled. The call continues until it notices, and its result is discarded.
type job struct {
	done   chan struct{}
	cancel context.CancelFunc
	value  uint64
	err    error
}

var jobs = handle.Table[*job]{What: "job"}

// A queue runs jobs one at a time, in the order in which they were started.
type queue struct {
	mu   sync.Mutex
	last <-chan struct{} // closed when the last job is done; nil before the first
}

func (q *queue) start(call func(ctx context.Context) (uint64, error)) (id uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{done: make(chan struct{}), cancel: cancel}
	q.mu.Lock()
	before := q.last
	q.last = j.done
	q.mu.Unlock()
	go func() {
		defer close(j.done)
		defer cancel()
		defer func() {
			if r := recover(); r != nil {
				j.err = coded("E_INTERNAL", fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
			}
		}()
		if before != nil {
			<-before
		}
		j.value, j.err = call(ctx)
	}()
	return jobs.Add(j)
}

// JobWait waits for a job and reports whether it is done.
func JobWait(id uint64, timeoutMS int) (done bool, err error) {
	defer guard(&err)
	j, err := jobs.Get(id)
	if err != nil {
		return false, err
	}
	select {
	case <-j.done:
		return true, nil
	default:
	}
	patience := time.NewTimer(time.Duration(timeoutMS) * time.Millisecond)
	defer patience.Stop()
	select {
	case <-j.done:
		return true, nil
	case <-patience.C:
		return false, nil
	}
}

// JobResult returns the result of a job that is done, and removes the job.
func JobResult(id uint64) (value uint64, err error) {
	defer guard(&err)
	j, err := jobs.Get(id)
	if err != nil {
		return 0, err
	}
	select {
	case <-j.done:
	default:
		return 0, coded("E_STATE", fmt.Errorf("job %#x is still running", id))
	}
	jobs.Remove(id)
	return j.value, j.err
}

// JobDrop removes a job and cancels its context.
func JobDrop(id uint64) (n int, err error) {
	defer guard(&err)
	if j, ok := jobs.Remove(id); ok {
		j.cancel()
	}
	return 0, nil
}
