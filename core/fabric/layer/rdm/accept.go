// SPDX-License-Identifier: MIT

package rdm

import (
	"context"
	"errors"
	"fmt"

	"mori/core/fabric"
)

// acceptAll answers each request for a connection in a goroutine of its own, maxHandshakes at once.
func (e *Endpoint) acceptAll() {
	for {
		select {
		case e.places <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		req, err := e.listener.Accept(e.ctx)
		if err != nil {
			if e.ctx.Err() == nil && !errors.Is(err, fabric.ErrClosed) {
				e.cfg.Log.Error("rdm: no more connections are accepted", "at", e.name, "why", err)
			}
			return
		}
		answer := func() {
			e.admit(req)
			<-e.places
		}
		if !e.spawn(answer) {
			e.refuse(req, fabric.ErrClosed)
			return
		}
	}
}

// admit makes a conn of a request, or refuses it.
func (e *Endpoint) admit(req fabric.ConnReq) {
	c, err := e.accepting(req)
	if err != nil {
		e.refuse(req, err)
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.DialTimeout)
	defer cancel()
	err = c.carrier.Accept(ctx, req, nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil { // the peer gave up
		e.drop(c)
		return
	}
	if e.byName[c.peer] == nil && !c.retiring {
		e.byName[c.peer] = c
	}
}

// accepting is a conn for the peer that asks, not connected yet.
func (e *Endpoint) accepting(req fabric.ConnReq) (*conn, error) {
	peer, err := parseHello(req.Private())
	if err != nil {
		return nil, err
	}
	if n := e.recv.Orphaned(); n > maxOrphaned {
		return nil, fmt.Errorf("%d bytes of messages from ended connections wait for receives: %w", n, fabric.ErrBusy)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fabric.ErrClosed
	}
	return e.open(peer)
}

// refuse sends the peer the reason, as far as there is space.
func (e *Endpoint) refuse(req fabric.ConnReq, why error) {
	if !errors.Is(why, fabric.ErrClosed) {
		e.cfg.Log.Warn("rdm: connection refused", "at", e.name, "from", req.Peer(), "why", why)
	}
	sentence := why.Error()
	_ = req.Reject([]byte(sentence[:min(len(sentence), e.cfg.Limits.MaxPrivate)]))
}
