// SPDX-License-Identifier: MIT

package proxy

import "time"

// firstSleep is the shortest sleep.
const firstSleep = 50 * time.Microsecond

// looks is the number of turns between two reads of the clock.
const looks = 16

// A pause computes how long to sleep after a turn without work: 0 until spin has passed since the
// last work, then doubling up to most. The other fields start at zero.
type pause struct {
	spin, most time.Duration

	turns int
	since time.Duration // time of the first turn without work; 0: unset
	sleep time.Duration
}

// work records that there was work.
func (p *pause) work() { p.turns, p.since, p.sleep = 0, 0, 0 }

// next returns how long to sleep now; 0: poll again. It calls now only on some turns.
func (p *pause) next(now func() time.Duration) time.Duration {
	if p.turns++; p.turns%looks != 0 && p.sleep == 0 {
		return 0
	}
	if p.sleep == 0 {
		t := now()
		if p.since == 0 {
			p.since = max(t, 1)
		}
		if t-p.since < p.spin {
			return 0
		}
	}
	p.sleep = min(max(2*p.sleep, firstSleep), p.most)
	return p.sleep
}

var began = time.Now()
