// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mori/io/internal/transport"
)

// healthyFirst is the order in which transports are tried: those that broke lately come last.
func (p *peer) healthyFirst(all []*transport.Transport) []*transport.Transport {
	var healthy, broken []*transport.Transport
	for _, tr := range all {
		if p.health.Broken(tr.Name()) {
			broken = append(broken, tr)
		} else {
			healthy = append(healthy, tr)
		}
	}
	return append(healthy, broken...)
}

// heal tries better transports again where a path runs on a lesser one, and closes paths that are
// not in use.
func (p *peer) heal(now time.Time) {
	for r, q := range p.pathsByRoute() {
		if tr := p.due(r, q, now); tr != nil {
			p.spawn(func() { p.probe(r, tr, q) })
		}
		idle := int64(now.Sub(epoch)) - q.used.Load()
		if limit := p.engine.idle; limit > 0 && idle > int64(limit) && q.ledger.len() == 0 {
			go q.close(errIdle)
		}
	}
	for _, q := range p.retired() {
		go q.close(errIdle)
	}
}

// errIdle is the reason for the end of a path that is not in use; the next transfer opens another.
var errIdle = fmt.Errorf("not in use: %w", ErrBadState)

// due is the transport to try again now instead of q's, if there is one.
func (p *peer) due(r *route, q *path, now time.Time) *transport.Transport {
	for _, tr := range r.transports {
		if tr == q.tr {
			return nil
		}
		if p.health.Due(tr.Name(), now) {
			return tr
		}
	}
	return nil
}

// probe opens a path over tr, and puts it in the place of worse, which ends when its transfers
// have.
func (p *peer) probe(r *route, tr *transport.Transport, worse *path) {
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
	q, err := p.openWith(ctx, []*transport.Transport{tr}, r, w)
	if err != nil {
		p.engine.self.Log.Debug("transport still broken", "peer", p.desc.Key, "transport", tr.Name(),
			"reason", err)
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

// why is why no better path is used: what was found when p was opened, what broke since then, and
// what the provider says of how it moves bytes by now.
func (p *path) why() []string {
	out := slices.Clone(p.reasons)
	for _, tr := range p.route.transports {
		if tr == p.tr {
			break
		}
		known := slices.ContainsFunc(out, func(s string) bool { return strings.HasPrefix(s, tr.Name()+": ") })
		if text := p.peer.health.Reason(tr.Name()); text != "" && !known {
			out = append(out, text)
		}
	}
	return append(out, p.how()...)
}
