// SPDX-License-Identifier: MIT

package peer

import (
	"time"

	"mori/io/internal/backend"
	"mori/io/internal/path"
	"mori/io/internal/transport"
)

// heal retries better transports where a path uses a lesser one, and closes unused paths.
func (p *Peer) heal(now time.Time) {
	for r, q := range p.paths.open() {
		if tr := p.due(r, q, now); tr != nil {
			p.tasks.spawn(func() { p.probe(r, tr, q) })
		}
		if limit := p.config.Idle; limit > 0 && q.Idle(now) > limit && q.Ledger().Len() == 0 {
			go q.Close(path.ErrIdle)
		}
	}
	for _, q := range p.paths.retired() {
		go q.Close(path.ErrIdle)
	}
}

// due returns the transport to retry now instead of q's, nil if none is due.
func (p *Peer) due(r *backend.Route, q *path.Path, now time.Time) *transport.Transport {
	for _, tr := range r.Transports {
		if tr == q.Transport() {
			return nil
		}
		if p.health.Due(tr.Name(), now) {
			return tr
		}
	}
	return nil
}

// probe opens a path over tr that replaces worse. It closes worse when its transfers have ended.
func (p *Peer) probe(r *backend.Route, tr *transport.Transport, worse *path.Path) {
	ctx, cancel := p.Limit(r.Backend.Config.ControlTimeout())
	defer cancel()
	if p.dial.Lock(ctx) != nil {
		return
	}
	defer p.dial.Unlock()
	w, err := p.control.Greet(ctx)
	if err != nil {
		return
	}
	q, err := p.dialer.openWith(ctx, []*transport.Transport{tr}, r, w)
	if err != nil {
		p.config.Self.Log.Debug("transport still broken", "peer", p.Desc.Key, "transport", tr.Name(),
			"reason", err)
		return
	}
	if !p.paths.supersede(r, worse, q) {
		q.Close(path.ErrIdle)
		return
	}
	worse.Supersede()
	p.config.Self.Log.Info("path taken back", "peer", p.Desc.Key, "path", q.Name(), "instead of",
		worse.Name())
}
