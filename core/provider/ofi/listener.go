// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"context"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	lf "mori/native/libfabric"
)

// backlogSize bounds the requests that wait for Accept; more are rejected.
const backlogSize = 128

// A listener is a fabric.Listener. Its libfabric endpoint is needed to reject requests. So it
// exists until the last request was answered, or at the latest until the fabric closes.
type listener struct {
	network *network
	addr    fabric.Addr
	format  uint32
	limit   int // of private data
	backlog chan *request
	done    chan struct{}
	once    sync.Once

	mu   sync.Mutex
	fid  lf.FID // 0 when closed
	open map[*request]bool
}

var (
	_ fabric.Listener = (*listener)(nil)
	_ taker           = (*listener)(nil)
)

func (f *network) Listen(_ context.Context, in *fabric.Info) (fabric.Listener, error) {
	if err := f.Adopt(); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := &listener{network: f, backlog: make(chan *request, backlogSize), done: make(chan struct{}), open: make(map[*request]bool)}
	if err := l.start(in); err != nil {
		f.Leave()
		return nil, fmt.Errorf("listen: %w", cause(err))
	}
	return l, nil
}

func (l *listener) start(in *fabric.Info) error {
	f := l.network
	o, list, err := f.provider.find(f.infoOr(in))
	if err != nil {
		return err
	}
	defer list.Free()
	l.format, l.limit = o.fi.AddrFormat, o.info.Limits.MaxPrivate
	if in != nil && in.Src != "" {
		addr, err := addrBytes(l.format, in.Src)
		if err != nil {
			return err
		}
		if err := lf.SetSrc(o.id, addr, l.format); err != nil {
			return err
		}
	}
	fid, err := lf.OpenPassive(f.fid, o.id)
	if err != nil {
		return err
	}
	g := f.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	var name []byte
	if err = fid.Bind(g.eq, 0); err == nil {
		if err = fid.Listen(); err == nil {
			name, err = fid.Name()
		}
	}
	if err != nil {
		_ = fid.Close()
		return err
	}
	l.fid, l.addr = fid, addrText(l.format, name)
	g.takers[fid] = l
	return nil
}

func (l *listener) Addr() fabric.Addr { return l.addr }

func (l *listener) Accept(ctx context.Context) (fabric.ConnReq, error) {
	select {
	case <-l.done:
		return nil, fabric.ErrClosed
	default:
	}
	select {
	case r := <-l.backlog:
		return r, nil
	case <-l.done:
		return nil, fabric.ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("accept at %s: %w", l.addr, ctx.Err())
	}
}

// event handles a request. The caller holds engine.polling.
func (l *listener) event(ev lf.Event) {
	if ev.Info == 0 {
		return
	}
	r := &request{listener: l, info: ev.Info, private: ev.Data, peer: addrText(l.format, lf.Describe(ev.Info).Dest)}
	l.mu.Lock()
	l.open[r] = true
	l.mu.Unlock()
	if !isClosed(l.done) {
		select {
		case l.backlog <- r:
			return
		default:
		}
	}
	if r.claim() {
		l.reject(r, nil)
	}
}

// Close rejects the requests that Accept has not returned.
func (l *listener) Close() error {
	l.once.Do(func() {
		g := l.network.engine
		g.polling.Lock()
		close(l.done)
		for len(l.backlog) > 0 {
			if r := <-l.backlog; r.claim() {
				l.reject(r, nil)
			}
		}
		l.mu.Lock()
		if len(l.open) == 0 {
			l.closeFID()
		} else {
			l.network.mu.Lock()
			l.network.waiting = append(l.network.waiting, l)
			l.network.mu.Unlock()
		}
		l.mu.Unlock()
		g.polling.Unlock()
		l.network.Leave()
	})
	return nil
}

// abandon rejects unanswered requests when the fabric closes.
func (l *listener) abandon() {
	g := l.network.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	l.mu.Lock()
	var left []*request
	for r := range l.open {
		left = append(left, r)
	}
	l.mu.Unlock()
	for _, r := range left {
		if r.claim() {
			l.reject(r, nil)
		}
	}
}

// reject rejects a claimed request. The caller holds engine.polling.
func (l *listener) reject(r *request, private []byte) {
	_ = l.fid.Reject(lf.Handle(r.info), private)
	l.over(r)
}

// over ends a claimed request. If the listener is closed and has no other requests, over ends it,
// too. The caller holds engine.polling.
func (l *listener) over(r *request) {
	lf.FreeInfo(r.info)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, r)
	if len(l.open) == 0 && isClosed(l.done) {
		l.closeFID()
	}
}

// closeFID closes the libfabric object. The caller holds engine.polling and mu.
func (l *listener) closeFID() {
	if l.fid != 0 {
		delete(l.network.engine.takers, l.fid)
		_ = l.fid.Close()
		l.fid = 0
	}
}

// A request is a fabric.ConnReq.
type request struct {
	listener *listener
	info     lf.FID
	private  []byte
	peer     fabric.Addr

	mu      sync.Mutex
	claimed bool
}

func (r *request) Peer() fabric.Addr { return r.peer }

func (r *request) Private() []byte { return r.private }

// claim reports whether the caller may answer.
func (r *request) claim() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.claimed
	r.claimed = true
	return first
}

// done ends a claimed request, whether it was accepted or not.
func (r *request) done() {
	g := r.listener.network.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	r.listener.over(r)
}

func (r *request) Reject(private []byte) error {
	if err := util.CheckPrivate(private, r.listener.limit); err != nil {
		return err
	}
	if !r.claim() {
		return fmt.Errorf("reject a request that is over: %w", fabric.ErrInvalid)
	}
	g := r.listener.network.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	r.listener.reject(r, private)
	return nil
}
