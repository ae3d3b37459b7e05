// SPDX-License-Identifier: MIT

package proxy

import "time"

// firstSleep is the shortest sleep.
const firstSleep = 50 * time.Microsecond

// looks is the number of turns between two looks at the clock.
const looks = 16

// A pause computes how long to sleep after a turn without work: not at all until spin has passed
// since the last work, and then twice as long each time, up to most. The other fields begin as
// zero.
type pause struct {
	spin, most time.Duration

	turns int
	since time.Duration // when the first turn without work was; 0: not known
	sleep time.Duration
}

// work notes that there was work.
func (p *pause) work() { p.turns, p.since, p.sleep = 0, 0, 0 }

// next is how long to sleep now; 0: look again. It calls now at some turns only.
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
