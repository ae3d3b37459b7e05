// SPDX-License-Identifier: MIT

package proxy

import (
	"testing"
	"time"
)

// What came while the thread was looking around keeps it from napping.
func TestNewsOfTheLastTurnEndANap(t *testing.T) {
	q := &Queue{}
	w := &worker{q: q, pause: pause{most: time.Hour, nap: time.Hour}}
	seen := q.news.Value.Load()
	q.nudge() // in mid-turn
	rested := make(chan struct{})
	go func() { w.rest(seen); close(rested) }()
	select {
	case <-rested:
	case <-time.After(10 * time.Second):
		t.Fatal("it naps, and a completion waits")
	}
	if n := q.Stats().Naps; n != 0 {
		t.Errorf("%d naps", n)
	}
}
