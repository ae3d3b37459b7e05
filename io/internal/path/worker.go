// SPDX-License-Identifier: MIT

package path

import "time"

// A worker is a goroutine that runs one function when it is woken.
type worker struct {
	kick chan struct{} // wakes it
	quit chan struct{} // ends it
	done chan struct{} // closed when it has returned
}

func newWorker() worker {
	return worker{make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
}

// work calls f after each wake and each time the timer fires, until stop.
func (w *worker) work(timer *time.Timer, f func()) {
	defer close(w.done)
	for {
		select {
		case <-w.kick:
		case <-timer.C:
		case <-w.quit:
			return
		}
		f()
	}
}

// wake wakes the worker. It does not block. Calls before the worker runs count as one.
func (w *worker) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// stop ends the worker and waits for it.
func (w *worker) stop() {
	close(w.quit)
	<-w.done
}
