// SPDX-License-Identifier: MIT

package health

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestATransportIsTriedAgainWithBackOff(t *testing.T) {
	var r Record
	start := time.Now()
	if r.Broken("tcp") || r.Reason("tcp") != "" || r.Due("tcp", start.Add(time.Hour)) {
		t.Error("a transport that never broke")
	}
	r.Broke("tcp", errors.New("first"))
	r.Broke("tcp", errors.New("second")) // from another op at the same time
	if !r.Broken("tcp") || r.Broken("shm") || !strings.Contains(r.Reason("tcp"), "second") {
		t.Errorf("broken %v; %q", r.Broken("tcp"), r.Reason("tcp"))
	}
	if r.Due("tcp", start) || r.Due("shm", start.Add(time.Hour)) {
		t.Error("due at once, or for a transport that did not break")
	}
	now := start.Add(firstPause + time.Minute) // after the first retry is due
	for _, pause := range []time.Duration{2, 4, 8, 16, 30, 30} {
		if !r.Due("tcp", now) {
			t.Fatalf("not due before a pause of %d s", pause)
		}
		now = now.Add(pause * time.Second)
		if r.Due("tcp", now) {
			t.Fatalf("due again after less than %d s", pause)
		}
		now = now.Add(time.Millisecond)
	}
	r.Recovered("tcp")
	if r.Broken("tcp") || r.Due("tcp", now.Add(time.Hour)) {
		t.Error("broken after it recovered")
	}
}
