// SPDX-License-Identifier: MIT

package handshake

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
	// maxHalfOpen bounds the sockets of a listener that are still in the handshake, maxHalfOpenHost
	// those of one address. A new socket beyond the bound closes the oldest one.
	maxHalfOpen     = 512
	maxHalfOpenHost = 256
	// maxRequests bounds the requests that wait for Listener.Accept.
	maxRequests = 128
	// acceptPause is how long a listener pauses if the system returns no socket, for example
	// because there are no free descriptors.
	acceptPause = 50 * time.Millisecond
)

// A Config configures a Listener.
type Config struct {
	Transport Transport
	Provider  string        // for the log
	Wait      time.Duration // bounds each handshake; 0 means DefaultWait
	Log       func(level slog.Level, msg string, args ...any)
	Closed    func() // called once, when the listener has closed
}

// A Listener accepts sockets, reads their handshakes, and groups those of one endpoint as a
// Request. It implements fabric.Listener.
type Listener struct {
	cfg      Config
	ln       net.Listener
	requests chan *Request
	done     chan struct{}
	tasks    sync.WaitGroup
	once     sync.Once

	mu       sync.Mutex // protects what follows
	closed   bool
	halfOpen *admission.Set
	groups   map[[16]byte]*group
}

var _ fabric.Listener = (*Listener)(nil)

// A group holds the sockets of one endpoint that have arrived so far.
type group struct {
	req   *Request
	left  int
	timer *time.Timer
}

// Listen starts to accept connections at the address at; see Transport.Listen. Closed is not called
// if it fails.
func Listen(ctx context.Context, cfg Config, at fabric.Addr) (*Listener, error) {
	if cfg.Wait <= 0 {
		cfg.Wait = DefaultWait
	}
	ln, err := cfg.Transport.Listen(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", at, err)
	}
	l := &Listener{
		cfg: cfg, ln: ln, requests: make(chan *Request, maxRequests), done: make(chan struct{}),
		halfOpen: admission.NewSet(maxHalfOpen, maxHalfOpenHost), groups: map[[16]byte]*group{},
	}
	l.tasks.Add(1)
	go l.serve()
	return l, nil
}

// Addr returns the address that peers connect to.
func (l *Listener) Addr() fabric.Addr { return l.cfg.Transport.Addr(l.ln.Addr()) }

// Accept waits for the next request; see fabric.Listener.
func (l *Listener) Accept(ctx context.Context) (fabric.ConnReq, error) {
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

func (l *Listener) serve() {
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
			l.cfg.Log(slog.LevelWarn, "accept", "provider", l.cfg.Provider, "error", err)
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
func (l *Listener) admit(conn net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fabric.ErrClosed
	}
	if old := l.halfOpen.Add(conn); old != nil {
		_ = old.Close() // the close ends its handshake
		for nonce, g := range l.groups {
			if slices.Contains(g.req.sockets.Conns, old) {
				go l.expire(nonce, g, fmt.Errorf("%d handshakes are in progress: %w", maxHalfOpenHost, fabric.ErrBusy))
			}
		}
	}
	l.tasks.Add(1)
	return nil
}

// drop closes a socket and logs why.
func (l *Listener) drop(conn net.Conn, err error) {
	l.mu.Lock()
	quiet := l.closed
	l.halfOpen.Remove(conn)
	l.mu.Unlock()
	_ = conn.Close() // no data can be lost
	if !quiet {
		l.cfg.Log(slog.LevelWarn, "connection refused", "provider", l.cfg.Provider, "from", conn.RemoteAddr(), "error", err)
	}
}

// shake runs the passive side of the handshake up to the request.
func (l *Listener) shake(conn net.Conn) {
	defer l.tasks.Done()
	extra, h, err := l.readHandshake(conn)
	if err == nil {
		err = l.join(conn, extra, &h)
	}
	if err != nil {
		Release(extra)
		l.drop(conn, err)
	}
}

func (l *Listener) readHandshake(conn net.Conn) (extra any, h frame.Handshake, err error) {
	if err := conn.SetDeadline(time.Now().Add(l.cfg.Wait)); err != nil {
		return nil, h, err
	}
	if extra, err = l.cfg.Transport.Prelude(conn, false); err != nil {
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

// join adds a socket to its group. When the group is complete, join queues the request.
func (l *Listener) join(conn net.Conn, extra any, h *frame.Handshake) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fabric.ErrClosed
	}
	g := l.groups[h.Nonce]
	if g == nil {
		g = &group{req: &Request{sockets: Sockets{Conns: make([]net.Conn, h.Links)}}, left: int(h.Links)}
		g.req.handshake.Links = h.Links
		g.timer = time.AfterFunc(l.cfg.Wait, func() {
			l.expire(h.Nonce, g, fmt.Errorf("not all %d sockets of an endpoint arrived: %w", h.Links, fabric.ErrTimeout))
		})
		l.groups[h.Nonce] = g
	}
	r := g.req
	if h.Links != r.handshake.Links || r.sockets.Conns[h.Link] != nil {
		return frame.ProtocolErr("handshake for socket %d of %d where %d are expected once each", h.Link, h.Links, r.handshake.Links)
	}
	r.sockets.Conns[h.Link] = conn
	if h.Link == 0 {
		r.handshake = *h
		r.sockets.Extra, r.sockets.Peer = extra, l.cfg.Transport.Addr(conn.RemoteAddr())
		r.sockets.PeerTx, r.sockets.Features = int(h.Tx), h.Features
	} else {
		Release(extra) // the first socket's extra is used for all
	}
	if g.left--; g.left > 0 {
		return nil
	}
	g.timer.Stop()
	delete(l.groups, h.Nonce)
	for _, c := range r.sockets.Conns {
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

// expire drops a group that was evicted or whose other sockets did not arrive.
func (l *Listener) expire(nonce [16]byte, g *group, why error) {
	l.mu.Lock()
	if l.groups[nonce] != g {
		l.mu.Unlock()
		return
	}
	delete(l.groups, nonce)
	g.timer.Stop()
	conns := g.req.sockets.Conns
	l.mu.Unlock()
	Release(g.req.sockets.Extra)
	for _, c := range conns {
		if c != nil {
			l.drop(c, why)
		}
	}
}

// turnAway refuses a request that was not accepted.
func (l *Listener) turnAway(r *Request) {
	_ = r.refuse(&frame.HandshakeReply{Verdict: frame.Busy}) // the peer also sees the close
}

// Close stops listening; see fabric.Listener. A second Close waits for the first.
func (l *Listener) Close() (err error) {
	l.once.Do(func() { err = l.close() })
	return err
}

func (l *Listener) close() error {
	l.mu.Lock()
	l.closed = true
	close(l.done)
	for _, g := range l.groups {
		g.timer.Stop()
		Release(g.req.sockets.Extra)
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
	l.cfg.Closed()
	return err
}
