// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"slices"
	"time"
)

// An illness is why a transport to a peer is not the first choice, although it would be the better
// one.
type illness struct {
	cause error // the last one
	since time.Time
	next  time.Time     // when to try it again
	pause time.Duration // before the next attempt
}

// How soon after it broke a transport is tried again, and how seldom at last.
const (
	probeFirst = time.Second
	probeMost  = 30 * time.Second
)

// fellIll notes that a connection over the transport broke. Several ops of a connection tell the
// same, which is once.
func (p *peer) fellIll(name string, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	i := p.ill[name]
	if i == nil {
		i = &illness{since: now, pause: probeFirst}
		p.ill[name] = i
	}
	i.cause = cause
	if now.Before(i.next) {
		return
	}
	i.next = now.Add(i.pause)
	i.pause = min(2*i.pause, probeMost)
}

// illnesses says which transports of the route broke, of those before one, by name.
func (p *peer) illnesses(r *route, before *transport) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]string{}
	for _, tr := range r.transports {
		if tr == before {
			break
		}
		if i := p.ill[tr.name]; i != nil {
			out[tr.name] = fmt.Sprintf("%s: broke %v ago, and is tried again: %v", tr.name, time.Since(i.since).Round(time.Second), i.cause)
		}
	}
	return out
}

// recovered notes that a connection over the transport was made.
func (p *peer) recovered(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ill, name)
}

// healthyFirst is the order in which transports are tried: those that broke lately come last.
func (p *peer) healthyFirst(all []*transport) []*transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	var healthy, ill []*transport
	for _, tr := range all {
		if p.ill[tr.name] == nil {
			healthy = append(healthy, tr)
		} else {
			ill = append(ill, tr)
		}
	}
	return append(healthy, ill...)
}

// heal tries better transports again where a path runs on a lesser one, and closes paths that
// nobody uses.
func (p *peer) heal(now time.Time) {
	for r, q := range p.pathsByRoute() {
		if tr := p.due(r, q, now); tr != nil {
			p.spawn(func() { p.probe(r, tr, q) })
		}
		if idle := int64(now.Sub(epoch)) - q.used.Load(); p.engine.idle > 0 && idle > int64(p.engine.idle) && q.ledger.len() == 0 {
			go q.close(errIdle)
		}
	}
	for _, q := range p.retired() {
		go q.close(errIdle)
	}
}

// errIdle is the reason for the end of a path that nobody used; the next transfer opens another.
var errIdle = fmt.Errorf("not in use: %w", ErrBadState)

// due is the transport to try again now instead of q's, if there is one.
func (p *peer) due(r *route, q *path, now time.Time) *transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, tr := range r.transports {
		if tr == q.tr {
			return nil
		}
		if i := p.ill[tr.name]; i != nil && now.After(i.next) {
			i.next = now.Add(i.pause)
			i.pause = min(2*i.pause, probeMost)
			return tr
		}
	}
	return nil
}

// probe opens a path over tr, and puts it in the place of worse, which ends when its transfers
// have.
func (p *peer) probe(r *route, tr *transport, worse *path) {
	ctx, cancel := p.controlContext(r.backend)
	defer cancel()
	if p.dial.Lock(ctx) != nil {
		return
	}
	defer p.dial.Unlock()
	w, err := p.ctl.Greet(ctx)
	if err != nil {
		return
	}
	q, err := p.openWith(ctx, []*transport{tr}, r, w)
	if err != nil {
		p.engine.self.Log.Debug("transport still broken", "peer", p.desc.Key, "transport", tr.name, "reason", err)
		return
	}
	p.mu.Lock()
	stays := p.closed == nil && p.paths[r] == worse
	if stays {
		p.paths[r] = q
		p.old = append(p.old, worse)
	}
	p.mu.Unlock()
	if !stays {
		q.close(errIdle)
		return
	}
	worse.superseded.Store(true)
	p.engine.self.Log.Info("path taken back", "peer", p.desc.Key, "path", q.name, "instead of", worse.name)
}

// retired are the superseded paths whose transfers have ended.
func (p *peer) retired() []*path {
	p.mu.Lock()
	defer p.mu.Unlock()
	var over []*path
	p.old = slices.DeleteFunc(p.old, func(q *path) bool {
		done := q.err() != nil || q.ledger.len() == 0
		if done && q.err() == nil {
			over = append(over, q)
		}
		return done
	})
	return over
}
