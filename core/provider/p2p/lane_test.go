// SPDX-License-Identifier: MIT

package p2p

import (
	"testing"
	"time"
)

// after is a second after the lane's last copy.
func after(ln *lane) time.Time {
	if ln.ended.IsZero() {
		return time.Unix(1000, 0)
	}
	return ln.ended.Add(time.Second)
}

// fly polls a copy that takes so long as run would, and returns when its end was seen.
func fly(ln *lane, bytes uint64, takes time.Duration) time.Duration {
	f := &copyJob{lane: ln, copyList: copyList{bytes: bytes}, begun: after(ln)}
	f.expect()
	now := f.begun
	for now.Sub(f.begun) < takes {
		if nap := min(f.nap(now), longNap); nap >= shortNap {
			now = now.Add(nap)
		} else {
			now = now.Add(time.Microsecond)
		}
	}
	f.measured(now, nil)
	return now.Sub(f.begun)
}

// The end of a copy is soon seen in time, whatever was expected of it first.
func TestExpectationsConverge(t *testing.T) {
	const bytes = 64 << 20
	for _, takes := range []time.Duration{100 * time.Microsecond, 180 * time.Microsecond, 1200 * time.Microsecond, 30 * time.Millisecond} {
		for _, expected := range []time.Duration{0, 10 * time.Microsecond, time.Millisecond, 200 * time.Millisecond} {
			ln := &lane{nsPerByte: float64(expected) / bytes}
			for range 25 {
				fly(ln, bytes, takes)
			}
			for range 20 {
				if seen := fly(ln, bytes, takes); seen > takes+takes/20+5*time.Microsecond {
					t.Errorf("%v, expected %v at first: seen after %v", takes, expected, seen)
					break
				}
			}
		}
	}
}

// A copy that takes long is not spun for all the time.
func TestLongCopiesAreSleptFor(t *testing.T) {
	ln := &lane{}
	const bytes, takes = 1 << 30, 20 * time.Millisecond
	fly(ln, bytes, takes)
	f := &copyJob{lane: ln, copyList: copyList{bytes: bytes}, begun: after(ln)}
	f.expect()
	if nap := f.nap(f.begun); nap < takes/2 {
		t.Errorf("a nap of %v in a copy of %v", nap, takes)
	}
	f.measured(f.begun.Add(takes), nil)
	f = &copyJob{lane: ln, copyList: copyList{bytes: 100}, begun: after(ln)}
	f.expect()
	if nap := f.nap(f.begun); nap != 0 {
		t.Errorf("a nap of %v at the beginning of a small copy", nap)
	}
}

// What copies beside each other take says what one alone takes, and that soon.
func TestCopiesBesideEachOther(t *testing.T) {
	const bytes, alone, beside = 32 << 20, 100 * time.Microsecond, 4
	ln := &lane{}
	for range 20 {
		begun := after(ln)
		var all []*copyJob
		for range beside {
			f := &copyJob{lane: ln, copyList: copyList{bytes: bytes}, begun: begun}
			f.expect()
			all = append(all, f)
		}
		for i, f := range all { // one after the other through one link
			f.nap(begun.Add(time.Duration(i+1)*alone - time.Microsecond))
			f.measured(begun.Add(time.Duration(i+1)*alone), nil)
		}
	}
	if ln.under != 0 {
		t.Errorf("%d bytes are under way when all have ended", ln.under)
	}
	if seen := fly(ln, bytes, alone); seen > alone+alone/10 {
		t.Errorf("a copy of %v, alone after some beside each other: seen after %v", alone, seen)
	}
}
