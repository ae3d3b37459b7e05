// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/io/internal/arrivals"
	"mori/io/internal/control"
	"mori/io/internal/identity"
	"mori/io/internal/message"
	"mori/io/internal/serial"
)

// maxLinks bounds the connections that peers may hold to one transport.
const maxLinks = 4096

// A link is a connection that a peer opened to us. Its transfers run without our doing; what
// reaches us are the notifications of those that arrived. Where the provider keeps them in shared
// memory they stay there until somebody asks or the engine's tick comes by, so that an arrival
// wakes nobody; elsewhere whoever received them books them, since a full queue would hold up the
// peer until the next tick.
type link struct {
	tr    *transport
	who   identity.ID // the peer
	token []byte      // that it was opened with
	ep    fabric.Endpoint
	cq    fabric.CQ
	in    *arrivals.Log

	reads   serial.Calls
	arrived [64]fabric.Completion // scratch of who drains
	closed  sync.Once
}

// acceptLinks admits peers that hold a token of our control plane.
func (tr *transport) acceptLinks(ctx context.Context, e *Engine) {
	defer tr.wg.Done()
	for {
		req, err := tr.lis.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, fabric.ErrClosed) {
				return
			}
			e.self.Log.Warn("accept", "transport", tr.name, "error", err)
			select {
			case <-time.After(clockPeriod):
			case <-ctx.Done():
				return
			}
			continue
		}
		tr.wg.Add(1)
		go func() {
			defer tr.wg.Done()
			tr.admit(ctx, e, req)
		}()
	}
}

func (tr *transport) admit(ctx context.Context, e *Engine, req fabric.ConnReq) {
	var who identity.ID
	ok, server := false, e.backends.controlServer()
	if server != nil {
		who, ok = server.Redeem(req.Private(), tr.name)
	}
	reason := ""
	switch {
	case !ok:
		reason = "unknown, used or expired token, or no proof for it: greet the control plane first"
	case len(tr.allLinks()) >= maxLinks:
		reason = "too many connections"
	}
	if reason != "" {
		e.self.Log.Warn("connection refused", "transport", tr.name, "from", req.Peer(), "reason", reason)
		_ = req.Reject([]byte(reason))
		return
	}
	l := &link{tr: tr, who: who, token: req.Private()[:message.TokenLen], in: e.arrived.Of(who)}
	var err error
	if l.ep, l.cq, err = tr.endpoint(func(err error) { l.close(err) }); err != nil {
		e.self.Log.Warn("connection refused", "transport", tr.name, "from", req.Peer(), "reason", err)
		_ = req.Reject([]byte(err.Error()))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	l.cq.OnReady(l.Drain)
	l.in.Watch(l)
	if !tr.addLink(l) {
		_ = req.Reject([]byte("engine is closing"))
		l.close(ErrClosed)
		return
	}
	if !server.Holds(req.Private()) { // it was dropped before the link was there to be found
		_ = req.Reject([]byte("token was dropped"))
		l.close(ErrClosed)
		return
	}
	if err := l.ep.(fabric.Connector).Accept(ctx, req, nil); err != nil {
		e.self.Log.Warn("connection refused", "transport", tr.name, "from", req.Peer(), "reason", err)
		l.close(err)
	}
}

func (l *link) book(done []fabric.Completion) {
	for _, c := range done {
		if c.Kind == fabric.OpRemoteWrite {
			l.in.Add(c.Data)
		}
	}
}

// disconnect closes the connections of all for whom gone is true, and makes their tokens worthless.
// When it returns, no byte of them can land any more.
func (t *backendTable) disconnect(gone func(identity.ID) bool) {
	if c := t.controlServer(); c != nil {
		c.Revoke(gone)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, tr := range t.openTransports() {
		for _, l := range tr.allLinks() {
			if !gone(l.who) {
				continue
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				l.close(ErrClosed)
			}()
		}
	}
}

// addLink answers false once the transport is closing.
func (tr *transport) addLink(l *link) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !tr.closing {
		tr.links[l] = struct{}{}
	}
	return !tr.closing
}

// controlServer returns the engine's control server, nil if there is none.
func (t *backendTable) controlServer() *control.Server {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.control
}

func (tr *transport) allLinks() []*link {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	out := make([]*link, 0, len(tr.links))
	for l := range tr.links {
		out = append(out, l)
	}
	return out
}

// Drain books the notifications that have arrived. Calls overlap, as in path.reap.
func (l *link) Drain() {
	l.reads.Do(func() {
		for {
			n, err := l.cq.Read(l.arrived[:])
			l.book(l.arrived[:n])
			if errors.Is(err, fabric.ErrAvail) {
				var e fabric.ErrEntry
				for l.cq.ReadErr(&e) == nil {
				}
			} else if n == 0 {
				return
			}
		}
	})
}

// close ends the connection. When it returns, whoever called it, no byte of it can land any more;
// what had arrived stays known.
func (l *link) close(error) { l.closed.Do(l.end) }

func (l *link) end() {
	l.tr.forget(l.ep)
	l.Drain() // the provider drops what is unread when the endpoint closes
	_ = l.ep.Close()
	l.Drain()
	_ = l.cq.Close()
	l.tr.mu.Lock()
	delete(l.tr.links, l)
	l.tr.mu.Unlock()
	l.in.Unwatch(l)
}
