// SPDX-License-Identifier: MIT

// Package health records which transports to a peer broke, and when to retry them.
//
// A transport that broke is tried after the others for a while. It is retried with exponential
// back-off, and its record is removed when a connection over it succeeds.
// back-off, and forgotten when a connection over it succeeds.
package health

import (
	"fmt"
	"sync"
	"time"
)

// The pause before the first retry of a transport that broke, and the longest pause between
// retries.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// A Record has the transports of one peer that broke, by name. The zero value is ready.
type Record struct {
	mu     sync.Mutex
	broken map[string]*outage
}

// An outage records why and when a transport broke.
type outage struct {
	cause error // the latest cause
	since time.Time
	next  time.Time     // time of the next retry
	pause time.Duration // pause before the retry after that
}

// Broke records that a connection over the transport broke. Several ops that report it at once
// count as one.
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

// Recovered records that a connection over the transport succeeded.
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

// Reason returns when and why the transport broke, "" if it did not.
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

// Due reports whether it is time to retry the transport. If it returns true, the caller must retry:
// the next retry is due after a longer pause.
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
