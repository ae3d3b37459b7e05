// SPDX-License-Identifier: MIT

package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"mori/core/admission"
	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

const (
	// maxHalfOpen bounds the sockets of a listener whose handshake is not over, maxHalfOpenHost
	// those of one address. The oldest is closed for a newcomer.
	maxHalfOpen     = 512
	maxHalfOpenHost = 256
	// maxRequests bounds the requests that wait for Listener.Accept.
	maxRequests = 128
	// acceptPause is how long a listener rests when the system gives it no socket, such as without
	// free descriptors.
	acceptPause = 50 * time.Millisecond
)

// A listener takes sockets, reads their handshakes, and puts those of one endpoint together as a
// request.
type listener struct {
	fabric   *Fabric
	ln       net.Listener
	requests chan *request
	done     chan struct{}
	tasks    sync.WaitGroup
	once     sync.Once

	mu       sync.Mutex // protects what follows
	closed   bool
	halfOpen *admission.Set
	groups   map[[16]byte]*group
}

// A group is the sockets of one endpoint that have come so far.
type group struct {
	req   *request
	left  int
	timer *time.Timer
}

// Listen starts to accept connections; see fabric.Fabric.
func (f *Fabric) Listen(ctx context.Context, in *fabric.Info) (fabric.Listener, error) {
	var at fabric.Addr
	if in != nil {
		at = in.Src
	}
	if err := f.adopt("listen"); err != nil {
		return nil, err
	}
	ln, err := f.cfg.Transport.Listen(ctx, at)
	if err != nil {
		f.parent.Leave()
		return nil, fmt.Errorf("listen at %q: %w", at, err)
	}
	l := &listener{fabric: f, ln: ln, requests: make(chan *request, maxRequests), done: make(chan struct{}),
		halfOpen: admission.NewSet(maxHalfOpen, maxHalfOpenHost), groups: map[[16]byte]*group{}}
	l.tasks.Add(1)
	go l.serve()
	return l, nil
}

// Addr is where peers connect to.
func (l *listener) Addr() fabric.Addr { return l.fabric.cfg.Transport.Addr(l.ln.Addr()) }

// Accept waits for the next request; see fabric.Listener.
func (l *listener) Accept(ctx context.Context) (fabric.ConnReq, error) {
	select {
	case <-l.done:
		return nil, fmt.Errorf("accept: listener: %w", fabric.ErrClosed)
	default:
	}
	for {
		select {
		case r := <-l.requests:
			if !r.gone.Load() {
				return r, nil
			}
		case <-l.done:
			return nil, fmt.Errorf("accept: listener: %w", fabric.ErrClosed)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *listener) serve() {
	defer l.tasks.Done()
	for {
		conn, err := l.ln.Accept()
		if err != nil {
			select {
			case <-l.done:
				return
			case <-time.After(acceptPause):
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			l.fabric.cfg.log(slog.LevelWarn, "accept", "provider", l.fabric.cfg.Info.Provider, "error", err)
			continue
		}
		if err := l.admit(conn); err != nil {
			l.drop(conn, err)
			continue
		}
		go l.shake(conn)
	}
}

// admit counts a socket as half open, and closes the oldest one if there are too many.
func (l *listener) admit(conn net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fabric.ErrClosed
	}
	if old := l.halfOpen.Add(conn); old != nil {
		_ = old.Close() // its handshake notices
		for nonce, g := range l.groups {
			if slices.Contains(g.req.conns, old) {
				go l.expire(nonce, g, fmt.Errorf("%d handshakes are under way: %w", maxHalfOpenHost, fabric.ErrBusy))
			}
		}
	}
	l.tasks.Add(1)
	return nil
}

// drop closes a socket and says why.
func (l *listener) drop(conn net.Conn, err error) {
	l.mu.Lock()
	quiet := l.closed
	l.halfOpen.Remove(conn)
	l.mu.Unlock()
	_ = conn.Close() // nothing is on its way
	if !quiet {
		l.fabric.cfg.log(slog.LevelWarn, "connection refused", "provider", l.fabric.cfg.Info.Provider, "from", conn.RemoteAddr(), "error", err)
	}
}

// shake does the passive side of the handshake up to the request.
func (l *listener) shake(conn net.Conn) {
	defer l.tasks.Done()
	extra, h, err := l.readHandshake(conn)
	if err == nil {
		err = l.join(conn, extra, &h)
	}
	if err != nil {
		release(extra)
		l.drop(conn, err)
	}
}

func (l *listener) readHandshake(conn net.Conn) (extra any, h frame.Handshake, err error) {
	if err := conn.SetDeadline(time.Now().Add(l.fabric.cfg.handshake())); err != nil {
		return nil, h, err
	}
	if extra, err = l.fabric.cfg.Transport.Prelude(conn, false); err != nil {
		return nil, h, err
	}
	if h, err = frame.ReadHandshake(conn); err != nil {
		return extra, h, err
	}
	if err = h.CheckVersion(); err != nil {
		a := frame.HandshakeReply{Verdict: frame.VersionMismatch, Private: []byte(err.Error())}
		_, werr := conn.Write(a.Append(nil))
		return extra, h, errors.Join(err, werr)
	}
	return extra, h, conn.SetDeadline(time.Time{})
}

// join adds a socket to its group, and hands the request out when all are there.
func (l *listener) join(conn net.Conn, extra any, h *frame.Handshake) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fabric.ErrClosed
	}
	g := l.groups[h.Nonce]
	if g == nil {
		g = &group{req: &request{conns: make([]net.Conn, h.Links)}, left: int(h.Links)}
		g.req.handshake.Links = h.Links
		g.timer = time.AfterFunc(l.fabric.cfg.handshake(), func() {
			l.expire(h.Nonce, g, fmt.Errorf("not all of %d sockets of an endpoint came: %w", h.Links, fabric.ErrTimeout))
		})
		l.groups[h.Nonce] = g
	}
	r := g.req
	if h.Links != r.handshake.Links || r.conns[h.Link] != nil {
		return frame.ProtocolErr("handshake for socket %d of %d where %d are expected once each", h.Link, h.Links, r.handshake.Links)
	}
	r.conns[h.Link] = conn
	if h.Link == 0 {
		r.handshake, r.extra, r.peer = *h, extra, l.fabric.cfg.Transport.Addr(conn.RemoteAddr())
	} else {
		release(extra) // the first socket's stands for all
	}
	if g.left--; g.left > 0 {
		return nil
	}
	g.timer.Stop()
	delete(l.groups, h.Nonce)
	for _, c := range r.conns {
		l.halfOpen.Remove(c)
	}
	r.watch()
	select {
	case l.requests <- r:
	default:
		go l.turnAway(r)
	}
	return nil
}

// expire drops a group whose other sockets did not come, or that was evicted.
func (l *listener) expire(nonce [16]byte, g *group, why error) {
	l.mu.Lock()
	if l.groups[nonce] != g {
		l.mu.Unlock()
		return
	}
	delete(l.groups, nonce)
	g.timer.Stop()
	conns := g.req.conns
	l.mu.Unlock()
	release(g.req.extra)
	for _, c := range conns {
		if c != nil {
			l.drop(c, why)
		}
	}
}

// turnAway answers a request that nobody takes.
func (l *listener) turnAway(r *request) {
	_ = r.answer(&frame.HandshakeReply{Verdict: frame.Busy}) // the peer learns it from the closing as well
}

// Close stops listening; see fabric.Listener. A second Close waits for the first.
func (l *listener) Close() (err error) {
	l.once.Do(func() { err = l.close() })
	return err
}

func (l *listener) close() error {
	l.mu.Lock()
	l.closed = true
	close(l.done)
	for _, g := range l.groups {
		g.timer.Stop()
		release(g.req.extra)
	}
	clear(l.groups)
	for _, c := range l.halfOpen.All() {
		_ = c.Close() // wakes its handshake
		l.halfOpen.Remove(c)
	}
	l.mu.Unlock()
	err := l.ln.Close()
	l.tasks.Wait()
	for {
		select {
		case r := <-l.requests:
			l.turnAway(r)
			continue
		default:
		}
		break
	}
	l.fabric.parent.Leave()
	return err
}
