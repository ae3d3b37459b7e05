// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"mori/core"
	"mori/core/admission"
	"mori/core/fabric"
	"mori/io/internal/control"
	"mori/io/internal/health"
	"mori/io/internal/message"
	"mori/io/internal/serial"
	"mori/io/internal/transport"
)

// A peer is a remote engine, or the engine itself, as one registration of it is known here.
type peer struct {
	engine  *Engine
	desc    EngineDesc
	order   order
	parked  parking
	health  health.Record // of transports
	replays replayer
	ctl     *control.Client
	tags    *control.TagQueue

	mu     sync.Mutex
	closed error // why; nil while registered
	paths  map[*route]*path
	old    []*path // superseded, with transfers in flight

	unended sync.WaitGroup // paths that are not closed to the end
	life    lease
	stopped context.Context // done when closed
	stop    context.CancelFunc
	work    sync.WaitGroup // replays and probes

	dial serial.Mutex // held while a path is opened: one at a time
}

func newPeer(e *Engine, d EngineDesc) *peer {
	p := &peer{engine: e, desc: d, paths: map[*route]*path{}}
	p.order.book = e.meters.book
	p.replays.peer = p
	p.stopped, p.stop = context.WithCancel(context.Background())
	p.ctl = control.NewClient(&e.self, d,
		control.Near{SameNode: p.sameNode(), First: func() bool { return e.backends.has(BackendXGMI) }})
	p.tags = control.NewTagQueue(p.stopped, p.ctl, p.spawn)
	return p
}

// spawn runs f in a goroutine that the end of the registration waits for. It reports false if p is
// closed.
func (p *peer) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return false
	}
	p.work.Add(1)
	go func() {
		defer p.work.Done()
		f()
	}()
	return true
}

// reason returns why p is closed, nil while it is registered.
func (p *peer) reason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// present returns the open path for r, if there is one.
func (p *peer) present(r *route) (*path, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return nil, p.closed
	}
	if q := p.paths[r]; q != nil && q.err() == nil {
		return q, nil
	}
	return nil, nil
}

// path returns the open path for r, opening one if need be.
func (p *peer) path(ctx context.Context, r *route) (*path, error) {
	if err := p.dial.Lock(ctx); err != nil {
		return nil, fmt.Errorf("open a path to %q: another attempt is in progress: %w (%w)",
			p.desc.Key, err, ErrUnreachable)
	}
	defer p.dial.Unlock()
	if q, err := p.present(r); q != nil || err != nil {
		return q, err
	}
	w, err := p.ctl.Greet(ctx)
	if err != nil {
		return nil, err
	}
	q, err := p.open(ctx, r, w)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	if err = p.closed; err == nil {
		p.paths[r] = q
	}
	p.mu.Unlock()
	if err != nil {
		q.close(err)
		return nil, err
	}
	p.engine.self.Log.Info("path opened", "peer", p.desc.Key, "path", q.name, "instead", q.why())
	return q, nil
}

// open tries the route's transports, those that broke lately after the others, and keeps the reason
// of each that does not work.
func (p *peer) open(ctx context.Context, r *route, w *message.Welcome) (*path, error) {
	return p.openWith(ctx, p.healthyFirst(r.transports), r, w)
}

// openWith is open over the given transports.
func (p *peer) openWith(ctx context.Context, all []*transport.Transport, r *route,
	w *message.Welcome) (*path, error) {
	offered := map[string]string{}
	for _, ep := range w.Endpoints {
		offered[ep.Name] = ep.Addr
	}
	reasons := append([]string(nil), r.notes...)
	var last error
	for _, tr := range all {
		addr, ok := offered[tr.Name()]
		why := core.Unfit(tr.Name(), p.engine.self.NodeID == w.NodeID)
		switch {
		case !ok:
			why = "the peer does not offer it"
		case why == "":
			q, err := p.connect(ctx, r, tr, fabric.Addr(addr), w)
			if err == nil {
				q.reasons = reasons
				p.health.Recovered(tr.Name())
				return q, nil
			}
			p.health.Broke(tr.Name(), err)
			last, why = err, err.Error()
		}
		reasons = append(reasons, tr.Name()+": "+why)
	}
	if last == nil {
		last = ErrUnreachable
	}
	return nil, fmt.Errorf("open a path to %q: %v: %w", p.desc.Key, reasons, last)
}

func (p *peer) connect(ctx context.Context, r *route, tr *transport.Transport, to fabric.Addr,
	w *message.Welcome) (*path, error) {
	q := &path{peer: p, route: r, tr: tr, remote: w.Notify, token: w.Token}
	ready := make(chan struct{})
	ep, cq, err := tr.Endpoint(func(err error) {
		<-ready
		if q.kick != nil {
			p.health.Broke(tr.Name(), err)
			q.close(fmt.Errorf("connection to %q ended: %w", p.desc.Key, err))
		}
	})
	if err != nil {
		return nil, err
	}
	q.ep, q.cq = ep, cq
	at, _ := control.Addr(p.desc)
	if err := dialData(ctx, ep.(fabric.Connector), core.DialAddr(to, at),
		message.Ticket(p.engine.self.Signer, w.Token, tr.Name())); err != nil {
		tr.Forget(ep)
		close(ready)
		return nil, errors.Join(fmt.Errorf("connect to %q at %s: %w", p.desc.Key, to, err),
			ep.Close(), cq.Close())
	}
	newPath(q)
	close(ready)
	return q, nil
}

// maxBusy is how often a client tries again whose peer says that it is busy. The attempts take 8 s
// at least, so that a deadline of 5 s ends them first.
const maxBusy = 24

// dialData connects an endpoint. It tries again with back-off, as long as ctx allows: up to maxBusy
// times if the peer is busy, and up to control.MaxEvictions times if it closes the connection
// without an answer. Under a flood of connections a peer does so with the oldest.
func dialData(ctx context.Context, ep fabric.Connector, to fabric.Addr, ticket []byte) (err error) {
	var pause admission.Backoff
	for attempt := 1; ; attempt++ {
		_, err = ep.Connect(ctx, to, ticket)
		most := 0
		switch {
		case errors.Is(err, fabric.ErrBusy):
			most = maxBusy
		case errors.Is(err, fabric.ErrConnReset):
			most = control.MaxEvictions
		}
		if attempt >= most || !pause.Wait(ctx) {
			return err
		}
	}
}

// askRegion asks the peer whether d is registered there, so that a session is never born broken.
func (p *peer) askRegion(ctx context.Context, d MemoryDesc) error {
	known, size, err := p.ctl.Region(ctx, d.Key())
	switch {
	case err != nil:
		return err
	case !known:
		return fmt.Errorf("region %d is not registered with engine %q under this key: %w", d.ID,
			d.EngineKey, ErrNotFound)
	case size != d.Size:
		return fmt.Errorf("region %d of engine %q has %d bytes, the descriptor says %d: %w", d.ID,
			d.EngineKey, size, d.Size, ErrInvalid)
	}
	return nil
}

// closePath ends the path of one route.
func (p *peer) closePath(r *route, reason error) {
	p.mu.Lock()
	q := p.paths[r]
	delete(p.paths, r)
	p.mu.Unlock()
	if q != nil {
		q.close(reason)
	}
}

// closePaths ends all paths at once, since each may have to wait for the same peer; the next
// transfer opens new ones.
func (p *peer) closePaths(reason error) {
	var wg sync.WaitGroup
	for _, q := range p.allPaths() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			q.close(reason)
		}()
	}
	wg.Wait()
}

func (p *peer) allPaths() []*path {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*path, 0, len(p.paths)+len(p.old))
	for _, q := range p.paths {
		out = append(out, q)
	}
	return append(out, p.old...)
}

// pathsByRoute are the present ones that are open.
func (p *peer) pathsByRoute() map[*route]*path {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[*route]*path, len(p.paths))
	for r, q := range p.paths {
		if q.err() == nil {
			out[r] = q
		}
	}
	return out
}

// close ends the registration: nothing can be submitted to this peer any more, and what is in
// flight fails. When it returns, no byte of the peer's answers can land on this side.
func (p *peer) close(reason error) {
	p.mu.Lock()
	if p.closed == nil {
		p.closed = reason
	}
	p.mu.Unlock()
	p.parked.close(reason)
	p.stop()
	p.closePaths(reason)
	_ = p.dial.Lock(context.Background()) // whoever opens a path meanwhile closes it again
	p.unended.Wait()                      // for paths that had broken before, too
	p.dial.Unlock()
	p.parked.fail(func(*transfer) error { return reason })
	p.ctl.Close()
	p.work.Wait()
}
