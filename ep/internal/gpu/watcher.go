// SPDX-License-Identifier: MIT

package gpu

// A watcher aborts the kernels of an op when a rank that they may wait for has died.
type watcher struct{ stop, done chan struct{} } // nil until it runs

// start begins to watch in a goroutine, until stop or until the World ends.
func (w *watcher) start(h *health, n *notice) {
	w.stop, w.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(w.done)
		select {
		case <-h.world.Broken():
			// Exclude adds its ranks first and clears the notice later, so this abort is either
			// right or cleared.
			if err := h.world.Failed(); err != nil {
				h.excluded.unless(err, n.abort)
			}
		case <-h.world.Ended():
		case <-w.stop:
		}
	}()
}

// end waits for the goroutine. It may be called again.
func (w *watcher) end() {
	if w.stop != nil {
		close(w.stop)
		<-w.done
		w.stop = nil
	}
}
