// SPDX-License-Identifier: MIT

package rdm

import (
	"errors"

	"mori/core/fabric"
)

// An acceptor handles connection requests of peers.
type acceptor struct {
	conns    *conns
	listener fabric.Listener
	places   chan struct{} // one for each handshake
}

func (a *acceptor) init(t *conns) { a.conns, a.places = t, make(chan struct{}, maxHandshakes) }

func (a *acceptor) start(l fabric.Listener) {
	a.listener = l
	a.conns.spawn(a.acceptAll)
}

// stop closes the listener, if there is one.
func (a *acceptor) stop() {
	if a.listener != nil {
		_ = a.listener.Close()
	}
}

// acceptAll handles each connection request in its own goroutine, up to maxHandshakes at once.
func (a *acceptor) acceptAll() {
	ctx := a.conns.ctx
	for {
		select {
		case a.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		req, err := a.listener.Accept(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, fabric.ErrClosed) {
				a.conns.e.cfg.Log.Error("rdm: no more connections are accepted", "at", a.listener.Addr(), "why", err)
			}
			return
		}
		answer := func() {
			a.admit(req)
			<-a.places
		}
		if !a.conns.spawn(answer) {
			a.refuse(req, fabric.ErrClosed)
			return
		}
	}
}

// admit turns a request into a conn, or refuses it.
func (a *acceptor) admit(req fabric.ConnReq) {
	peer, err := parseHandshake(req.Private())
	if err == nil {
		err = a.conns.accept(peer, req)
	}
	if err != nil {
		a.refuse(req, err)
	}
}

// refuse sends the peer the reason, truncated to the space for private data.
func (a *acceptor) refuse(req fabric.ConnReq, why error) {
	cfg := &a.conns.e.cfg
	if !errors.Is(why, fabric.ErrClosed) {
		cfg.Log.Warn("rdm: connection refused", "at", a.listener.Addr(), "from", req.Peer(), "why", why)
	}
	sentence := why.Error()
	_ = req.Reject([]byte(sentence[:min(len(sentence), cfg.Limits.MaxPrivate)]))
}
