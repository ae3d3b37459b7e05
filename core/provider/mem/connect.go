// SPDX-License-Identifier: MIT

package mem

import (
	"context"
	"fmt"
	"slices"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// Connect requests a connection from the listener at to; see fabric.Connector. If it fails, the
// endpoint may try again.
func (e *endpoint) Connect(ctx context.Context, to fabric.Addr, private []byte) ([]byte, error) {
	if err := util.CheckPrivate(private, limits.MaxPrivate); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	if err := e.State.Connect(); err != nil {
		return nil, err
	}
	e.connecting.Lock()
	defer e.connecting.Unlock()
	reply, err := e.ask(ctx, to, private)
	if err != nil {
		e.State.ConnectFailed()
		return nil, err
	}
	return reply, nil
}

func (e *endpoint) ask(ctx context.Context, to fabric.Addr, private []byte) ([]byte, error) {
	l := e.domain.network.provider.find(to)
	switch {
	case isClosed(e.closing):
		return nil, fabric.ErrClosed
	case l == nil:
		return nil, fmt.Errorf("connect to %s: nobody listens: %w", to, fabric.ErrConnRefused)
	}
	r := newRequest(e, to, private)
	select {
	case l.backlog <- r:
	case <-l.done:
		return nil, fmt.Errorf("connect to %s: it stopped listening: %w", to, fabric.ErrConnRefused)
	case <-e.closing:
		return nil, fabric.ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to %s: %w", to, ctx.Err())
	}
	stopped := l.done
	for {
		select {
		case a := <-r.answer:
			return a.reply, a.err
		case <-stopped:
			if r.giveUpIfWaiting() {
				return nil, fmt.Errorf("connect to %s: it stopped listening: %w", to, fabric.ErrConnRefused)
			}
			stopped = nil // the application has the request: its answer counts
		case <-e.closing:
			return r.giveUp(fabric.ErrClosed)
		case <-ctx.Done():
			return r.giveUp(fmt.Errorf("connect to %s: %w", to, ctx.Err()))
		}
	}
}

// giveUp ends the request with err, unless the answer is already being sent.
func (r *request) giveUp(err error) ([]byte, error) {
	if r.claim() {
		return nil, err
	}
	a := <-r.answer
	return a.reply, a.err
}

// Accept connects e to the requesting endpoint; see fabric.Connector.
func (e *endpoint) Accept(_ context.Context, req fabric.ConnReq, private []byte) error {
	r, ok := req.(*request)
	if !ok {
		return fmt.Errorf("accept a request of another provider (%T): %w", req, fabric.ErrInvalid)
	}
	if err := util.CheckPrivate(private, limits.MaxPrivate); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	if err := e.State.Connect(); err != nil {
		return err
	}
	e.connecting.Lock()
	defer e.connecting.Unlock()
	if isClosed(e.closing) {
		return fabric.ErrClosed
	}
	if !r.claim() {
		e.State.ConnectFailed()
		return fmt.Errorf("accept a request that is over: %w", fabric.ErrConnAborted)
	}
	// Neither endpoint can close now: this one waits for connecting, the other for the answer.
	l := newLink(e, r.asker)
	e.join(l, r.asker.name)
	r.asker.join(l, r.to)
	go newExecutor(l, e).run()
	go newExecutor(l, r.asker).run()
	r.answer <- answer{reply: slices.Clone(private)}
	return nil
}

// Peer returns the name of the listener or endpoint at the other end.
func (e *endpoint) Peer() fabric.Addr {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peerName
}

// Shutdown ends the connection in order; see fabric.Connector.
func (e *endpoint) Shutdown() error {
	e.mu.Lock()
	l := e.link
	e.mu.Unlock()
	switch {
	case isClosed(e.closing):
		return fabric.ErrClosed
	case l == nil:
		return fmt.Errorf("shut down an endpoint that is %v: %w", &e.State, fabric.ErrNotConn)
	}
	l.end(e, fabric.ErrConnAborted, fabric.ErrShutdown)
	<-e.gone
	return nil
}
