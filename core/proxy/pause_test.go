// SPDX-License-Identifier: MIT

package proxy

import (
	"testing"
	"time"
)

// A completion that came during the last turn keeps the thread from sleeping.
func TestNewsOfTheLastTurnEndASleep(t *testing.T) {
	q := &Queue{}
	w := &worker{q: q, pause: pause{most: time.Hour, sleep: time.Hour}}
	seen := q.news.Value.Load()
	q.nudge() // in mid-turn
	rested := make(chan struct{})
	go func() { w.rest(seen); close(rested) }()
	select {
	case <-rested:
	case <-time.After(10 * time.Second):
		t.Fatal("the thread sleeps, and a completion waits")
	}
	if n := q.Stats().Naps; n != 0 {
		t.Errorf("%d sleeps", n)
	}
}
