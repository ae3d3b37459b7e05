// SPDX-License-Identifier: MIT

// Package health remembers which transports to a peer broke, and when to try them again.
//
// A transport that broke comes after the others for a while. It is tried again with exponential
// back-off, and forgotten when a connection over it succeeds.
package health

import (
	"fmt"
	"sync"
	"time"
)

// How soon after it broke a transport is tried again, and the longest pause between attempts.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// A Record has the transports of one peer that broke, by name. The zero value is ready.
type Record struct {
	mu     sync.Mutex
	broken map[string]*outage
}

// An outage is why a transport is not the first choice.
type outage struct {
	cause error // the last one
	since time.Time
	next  time.Time     // when to try it again
	pause time.Duration // before the attempt after that
}

// Broke records that a connection over the transport broke. If several ops report it at once, it
// counts once.
func (r *Record) Broke(name string, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	o := r.broken[name]
	if o == nil {
		if r.broken == nil {
			r.broken = map[string]*outage{}
		}
		o = &outage{since: now, pause: firstPause}
		r.broken[name] = o
	}
	if o.cause = cause; now.Before(o.next) {
		return
	}
	o.postpone(now)
}

func (o *outage) postpone(now time.Time) {
	o.next = now.Add(o.pause)
	o.pause = min(2*o.pause, lastPause)
}

// Recovered records that a connection over the transport was made.
func (r *Record) Recovered(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.broken, name)
}

// Broken reports whether the transport broke and has not recovered.
func (r *Record) Broken(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken[name] != nil
}

// Reason says when and why the transport broke, "" if it did not.
func (r *Record) Reason(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.broken[name]
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%s: broke %v ago, mori retries it: %v", name,
		time.Since(o.since).Round(time.Second), o.cause)
}

// Due reports whether it is time to try the transport again. If it is, the caller does so: the next
// attempt is due after a longer pause.
func (r *Record) Due(name string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.broken[name]
	if o == nil || !now.After(o.next) {
		return false
	}
	o.postpone(now)
	return true
}
