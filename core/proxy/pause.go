// SPDX-License-Identifier: MIT

package proxy

import (
	"time"

	"mori/core/internal/sys"
)

// firstNap is the shortest nap.
const firstNap = 50 * time.Microsecond

// looks are the turns between two looks at the clock.
const looks = 16

// A pause says how long to sleep when there was nothing to do: not at all until spin has passed since there was, and then twice as long each
// time, up to most. The zero values of the other fields are right.
type pause struct {
	spin, most time.Duration

	turns int
	since time.Duration // when the first turn without work was; 0: not known
	nap   time.Duration
}

// work tells that there was something to do.
func (p *pause) work() { p.turns, p.since, p.nap = 0, 0, 0 }

// next is how long to sleep now; 0: look again. now is only asked for at some turns.
func (p *pause) next(now func() time.Duration) time.Duration {
	if p.turns++; p.turns%looks != 0 && p.nap == 0 {
		return 0
	}
	if p.nap == 0 {
		t := now()
		if p.since == 0 {
			p.since = max(t, 1)
		}
		if t-p.since < p.spin {
			return 0
		}
	}
	p.nap = min(max(2*p.nap, firstNap), p.most)
	return p.nap
}

var began = time.Now()

// rest waits for the next command or completion, for a bounded time. seen is the queue's news before the last turn began.
func (w *worker) rest(seen uint32) {
	q := w.q
	nap := w.pause.next(func() time.Duration { return time.Since(began) })
	if nap == 0 {
		sys.Yield()
		return
	}
	if q.news.Value.Load() != seen || w.ready() {
		return
	}
	q.stats.naps.Add(1)
	q.news.Park(seen, nap)
}

// ready looks for a command once more after others were told to wake.
func (w *worker) ready() bool {
	_, ok := w.look()
	return ok && !w.holds
}
