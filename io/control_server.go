// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"mori/core/admission"
	"mori/core/config"
)

const (
	handshakeWait = 5 * time.Second  // from the connection to our welcome; see Engine.handshake
	controlIdle   = 60 * time.Second // after which a silent client is closed
)

// The most control connections at once. Beyond a limit the least recently used connection of the same sort is closed. So strangers
// compete with each other only, and peers that are registered here and processes of this host have slots of their own.
const (
	maxUnfinished     = 512 // before their handshake is complete
	maxUnfinishedHost = 256 // of these, from one address
	maxUnfinishedUnix = 128 // before their handshake is complete, over the local socket
	maxKnown          = 512 // of peers that are registered here
	maxStrangers      = 512 // of others
	maxStrangersHost  = 256 // of these, from one address
	maxUnix           = 256 // over the local socket
)

// controlSets are the control connections by sort.
type controlSets struct {
	unfinished, unfinishedUnix, known, strangers, unix *admission.Set
}

func newControlSets() controlSets {
	return controlSets{unfinished: admission.NewSet(maxUnfinished, maxUnfinishedHost), unfinishedUnix: admission.NewSet(maxUnfinishedUnix, maxUnfinishedUnix),
		known: admission.NewSet(maxKnown, maxKnown), strangers: admission.NewSet(maxStrangers, maxStrangersHost), unix: admission.NewSet(maxUnix, maxUnix)}
}

// A controlConn is a connection of a client. Only the goroutine that serves it touches its fields.
type controlConn struct {
	net.Conn
	local bool           // over the local socket
	in    *admission.Set // that it counts against
	token []byte         // that it was given with our welcome; worth nothing once the connection ends
}

// enter counts c against a set and closes the connection that leaves it for c.
func (c *controlConn) enter(s *admission.Set) {
	if c.in != nil {
		c.in.Remove(c.Conn)
	}
	c.in = s
	if old := s.Add(c.Conn); old != nil {
		_ = old.Close() // its own goroutine notices
	}
}

// A controlServer answers peers that want to open paths. A client that breaks the protocol loses its connection, a
// log line says why, and nothing else happens.
type controlServer struct {
	engine *Engine
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	conns  controlSets

	mu     sync.Mutex
	tokens map[string]token
	remote net.Listener // on a network; nil: none
	local  net.Listener // reached from this host only; nil: none
}

func newControl(e *Engine) *controlServer {
	s := &controlServer{engine: e, conns: newControlSets(), tokens: map[string]token{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// listenTCP binds host:port, once. An empty host is the loopback address: without a host in its descriptor an engine
// can only be reached from its own machine.
func (s *controlServer) listenTCP(host string, port int) error {
	if host == "" {
		host = "127.0.0.1"
	}
	return s.listen(&s.remote, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// listenLocal binds a socket that processes of this host find by the engine's incarnation, once.
func (s *controlServer) listenLocal() error {
	return s.listen(&s.local, "unix", localControl(s.engine.incarnation))
}

// localControl names the socket in the abstract namespace of Linux: it leaves no file behind.
func localControl(incarnation uint64) string { return fmt.Sprintf("@mori-io-%016x", incarnation) }

func (s *controlServer) listen(to *net.Listener, network, addr string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *to != nil {
		return nil
	}
	lis, err := net.Listen(network, addr)
	if err != nil {
		return fmt.Errorf("listen on %s for the control plane: %w", addr, err)
	}
	if s.engine.tls != nil {
		lis = tls.NewListener(lis, s.engine.tls) // it shakes hands with the first read, which has a deadline
	}
	*to = lis
	s.wg.Add(1)
	go s.accept(lis, network == "unix")
	return nil
}

// port is the bound one, 0 if no network reaches the engine.
func (s *controlServer) port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remote == nil {
		return 0
	}
	return s.remote.Addr().(*net.TCPAddr).Port
}

func (s *controlServer) close() {
	s.stop()
	s.mu.Lock()
	for _, lis := range []net.Listener{s.remote, s.local} {
		if lis != nil {
			_ = lis.Close()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *controlServer) accept(lis net.Listener, local bool) {
	defer s.wg.Done()
	for {
		c, err := lis.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return
			}
			s.engine.log.Warn("control plane: accept", "error", err)
			select { // out of descriptors, most likely: do not spin
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		client := &controlConn{Conn: c, local: local}
		if local {
			client.enter(s.conns.unfinishedUnix)
		} else {
			client.enter(s.conns.unfinished)
		}
		s.wg.Add(1)
		go s.serve(client)
	}
}

// welcomed counts a client that has completed its handshake against the limit of its sort.
func (s *controlServer) welcomed(c *controlConn, who identity) {
	switch {
	case c.local:
		c.enter(s.conns.unix)
	case s.engine.store.peerOf(who.key) != nil:
		c.enter(s.conns.known)
	default:
		c.enter(s.conns.strangers)
	}
}

// serve answers one client until it leaves, breaks the protocol, or falls silent.
func (s *controlServer) serve(c *controlConn) {
	defer s.wg.Done()
	defer func() {
		_ = c.Close()
		c.in.Remove(c.Conn)
		s.forget(c.token)
	}()
	unhook := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	defer unhook()
	if err := s.converse(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && s.ctx.Err() == nil {
		s.engine.log.Warn("control plane: connection closed", "from", c.RemoteAddr(), "reason", err)
		if !errors.Is(err, errUnreadable) {
			_ = writeControl(c, controlError, &controlFailure{Text: err.Error()})
		}
	}
}

func (s *controlServer) converse(c *controlConn) error {
	if err := c.SetDeadline(time.Now().Add(s.engine.handshake)); err != nil {
		return err
	}
	greeted, who := false, identity{}
	for {
		if greeted {
			c.in.Touch(c.Conn)
			if err := c.SetDeadline(time.Now().Add(controlIdle)); err != nil {
				return err
			}
		}
		kind, body, err := readControl(c)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return io.EOF
		}
		if err != nil {
			return err
		}
		if greeted && kind != controlHello {
			if err := s.engine.store.admits(who); err != nil {
				return err
			}
		}
		switch {
		case kind == controlError:
			var f controlFailure
			if err = decodeControl(body, &f); err == nil {
				err = fmt.Errorf("the peer refuses: %.300s: %w", f.Text, ErrBadState)
			}
		case kind == controlHello && !greeted: // once: each further one would cost us a token
			if who, err = s.greet(c, body); err == nil {
				greeted = true
				s.welcomed(c, who)
			}
		case kind == controlAskRegion && greeted:
			err = s.tellRegion(c, body)
		case kind == controlDrop && greeted:
			err = s.dropLink(c, body)
		case kind == controlBeat && greeted:
			err = writeControl(c, controlBeat, &heartbeat{})
		case kind == controlTags && greeted:
			err = s.takeTags(c, who, body)
		default:
			err = fmt.Errorf("control message of type %d out of turn: %w", kind, ErrInvalid)
		}
		if err != nil {
			return err
		}
	}
}

// greet answers a hello with our transports and a token for data connections, and returns who sent it.
func (s *controlServer) greet(c *controlConn, body []byte) (who identity, err error) {
	var h hello
	if err := decodeControl(body, &h); err != nil {
		return who, err
	}
	e := s.engine
	switch {
	case h.Version != controlVersion:
		return who, fmt.Errorf("peer %q speaks control version %d, this engine %d: %w", h.Key, h.Version, controlVersion, ErrInvalid)
	case h.PeerKey != e.key:
		return who, fmt.Errorf("peer %q wants engine %q, but here is %q: %w", h.Key, h.PeerKey, e.key, ErrNotFound)
	case h.PeerIncarnation != 0 && h.PeerIncarnation != e.incarnation:
		return who, fmt.Errorf("engine %q was restarted: register its new descriptor: %w", e.key, ErrNotFound)
	}
	ch, err := s.authenticate(c, &h)
	if err != nil {
		return who, err
	}
	tok, err := s.issue(h)
	if err != nil {
		return who, err
	}
	c.token = tok
	w := welcome{Version: controlVersion, Key: e.key, NodeID: e.nodeID, Incarnation: e.incarnation, Notify: e.wantsNotifications(), Token: tok}
	for _, tr := range e.openTransports() {
		w.Endpoints = append(w.Endpoints, endpointInfo{Name: tr.name, Addr: string(tr.lis.Addr())})
	}
	w.Proof = e.secret.proof(roleWelcome, closing(&h, ch, &w)...)
	w.Signature = e.signer.sign(roleWelcome, closing(&h, ch, &w)...)
	return h.identity(), writeControl(c, controlWelcome, &w)
}

// authenticate has the sender of h sign for its identity, and exchanges proofs with it if we have a secret.
func (s *controlServer) authenticate(c net.Conn, h *hello) (*challenge, error) {
	e := s.engine
	switch {
	case e.secret != "" && !h.Auth:
		return nil, fmt.Errorf("engine %q wants proof of %s, and engine %q has none: %w", e.key, config.AuthSecret, h.Key, ErrBadState)
	case len(h.Nonce) != nonceLen || len(h.PublicKey) != len(publicKey{}):
		return nil, fmt.Errorf("hello with a nonce of %d bytes and a public key of %d: %w", len(h.Nonce), len(h.PublicKey), ErrInvalid)
	}
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	ch := &challenge{Nonce: nonce, Incarnation: e.incarnation, PublicKey: e.signer.public[:]}
	ch.Proof = e.secret.proof(roleServer, opening(h, ch)...)
	if err := writeControl(c, controlChallenge, ch); err != nil {
		return nil, err
	}
	kind, body, err := readControl(c)
	if err != nil {
		return nil, err
	}
	var p proofReply
	var f controlFailure
	switch {
	case kind == controlError && decodeControl(body, &f) == nil:
		return nil, fmt.Errorf("the peer refuses: %.300s: %w", f.Text, ErrBadState)
	case kind != controlProof:
		return nil, fmt.Errorf("control message of type %d in place of a proof: %w", kind, ErrInvalid)
	}
	if err := decodeControl(body, &p); err != nil {
		return nil, err
	}
	if !e.secret.proves(p.Proof, roleClient, opening(h, ch)...) {
		return nil, fmt.Errorf("engine %q has another %s than engine %q: %w", h.Key, config.AuthSecret, e.key, ErrBadState)
	}
	if !h.identity().public.verify(p.Signature, roleClient, opening(h, ch)...) {
		return nil, fmt.Errorf("the signature is not that of engine %q's public key: %w", h.Key, ErrBadState)
	}
	return ch, nil
}

func (s *controlServer) tellRegion(c net.Conn, body []byte) error {
	var q askRegion
	if err := decodeControl(body, &q); err != nil {
		return err
	}
	var reply regionReply
	key := regionKey{id: q.ID}
	if copy(key.secret[:], q.Secret); len(q.Secret) != len(key.secret) {
		return fmt.Errorf("question for a region with a secret of %d bytes: %w", len(q.Secret), ErrInvalid)
	}
	if r := s.engine.store.region(q.ID); r != nil && s.engine.store.grants(key) {
		reply = regionReply{Known: true, Size: r.desc.Size}
	}
	return writeControl(c, controlRegion, &reply)
}
