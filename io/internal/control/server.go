// SPDX-License-Identifier: MIT

package control

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

	"mori/io/internal/errs"
	"mori/io/internal/identity"
	"mori/io/internal/message"
)

// A Server answers peers that want to open paths. If a client violates the protocol, the server
// logs the reason and closes that client's connection.
type Server struct {
	self   *Self
	host   Host
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	conns  connSets
	tokens tokens

	mu     sync.Mutex
	remote net.Listener // on a network; nil if not bound
	local  net.Listener // reached from this host only; nil if not bound
}

// NewServer returns a server that does not listen yet.
func NewServer(self *Self, host Host) *Server {
	s := &Server{self: self, host: host, conns: newConnSets()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// ListenTCP binds host:port, once. An empty host is the loopback address: an engine whose
// descriptor has no host is reachable only from its own machine.
func (s *Server) ListenTCP(host string, port int) error {
	if host == "" {
		host = "127.0.0.1"
	}
	return s.listen(&s.remote, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// ListenLocal binds a socket that processes of this host find by the engine's incarnation, once.
func (s *Server) ListenLocal() error {
	return s.listen(&s.local, "unix", localAddr(s.self.Incarnation))
}

// localAddr returns the socket's name in the abstract namespace of Linux, which leaves no file
// behind.
func localAddr(incarnation uint64) string { return fmt.Sprintf("@mori-io-%016x", incarnation) }

func (s *Server) listen(to *net.Listener, network, addr string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *to != nil {
		return nil
	}
	lis, err := net.Listen(network, addr)
	if err != nil {
		return fmt.Errorf("listen on %s for the control plane: %w", addr, err)
	}
	if s.self.TLS != nil {
		lis = tls.NewListener(lis, s.self.TLS) // the first read does the handshake, within its deadline
	}
	*to = lis
	s.wg.Add(1)
	go s.accept(lis, network == "unix")
	return nil
}

// Port returns the bound port, 0 if the engine does not listen on a network.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remote == nil {
		return 0
	}
	return s.remote.Addr().(*net.TCPAddr).Port
}

// Close closes the listeners and all connections, and waits until no client is served any more.
func (s *Server) Close() {
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

// Redeem returns the engine that may open a data connection with the ticket over the named
// transport. A ticket is valid once per transport.
func (s *Server) Redeem(ticket []byte, transport string) (who identity.ID, ok bool) {
	return s.tokens.redeem(ticket, transport)
}

// Holds reports whether the token of a redeemed ticket is still valid.
func (s *Server) Holds(ticket []byte) bool { return s.tokens.holds(ticket) }

// Revoke invalidates the tokens of every ID for which gone is true.
func (s *Server) Revoke(gone func(identity.ID) bool) { s.tokens.revoke(gone) }

func (s *Server) accept(lis net.Listener, local bool) {
	defer s.wg.Done()
	for {
		c, err := lis.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return
			}
			s.self.Log.Warn("control plane: accept", "error", err)
			select { // probably out of file descriptors: do not spin
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		client := &clientConn{Conn: c, local: local}
		if local {
			client.enter(s.conns.unfinishedUnix)
		} else {
			client.enter(s.conns.unfinished)
		}
		s.wg.Add(1)
		go s.serve(client)
	}
}

// welcomed counts a client that has completed its handshake against the limit of its kind.
func (s *Server) welcomed(c *clientConn, who identity.ID) {
	switch {
	case c.local:
		c.enter(s.conns.unix)
	case s.host.Knows(who.Key):
		c.enter(s.conns.known)
	default:
		c.enter(s.conns.strangers)
	}
}

// serve answers one client until it disconnects, violates the protocol, or falls silent.
func (s *Server) serve(c *clientConn) {
	defer s.wg.Done()
	defer func() {
		_ = c.Close()
		c.in.Remove(c.Conn)
		s.tokens.forget(c.token)
	}()
	unhook := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	defer unhook()
	err := s.converse(c)
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
		return
	}
	s.self.Log.Warn("control plane: connection closed", "from", c.RemoteAddr(), "reason", err)
	if !errors.Is(err, message.ErrUnreadable) {
		_ = message.Write(c, message.TypeFailure, &message.Failure{Text: err.Error()})
	}
}

// converse does the handshake and then answers requests.
func (s *Server) converse(c *clientConn) error {
	if err := c.SetDeadline(time.Now().Add(s.self.handshakeLimit())); err != nil {
		return err
	}
	welcome, who := false, identity.ID{}
	for {
		if welcome {
			c.in.Touch(c.Conn)
			if err := c.SetDeadline(time.Now().Add(idleLimit)); err != nil {
				return err
			}
		}
		kind, body, err := message.Read(c)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return io.EOF
		}
		if err != nil {
			return err
		}
		switch {
		case kind == message.TypeFailure:
			err = refused(body)
		case welcome && kind != message.TypeHello: // one Hello only: each further one would cost a token
			if err = s.host.Admits(who); err == nil {
				err = s.answer(c, who, kind, body)
			}
		case !welcome && kind == message.TypeHello:
			if who, err = s.greet(c, body); err == nil {
				welcome = true
				s.welcomed(c, who)
			}
		default:
			err = outOfTurn(kind)
		}
		if err != nil {
			return err
		}
	}
}

func outOfTurn(kind message.Type) error {
	return fmt.Errorf("unexpected control message of type %d: %w", kind, errs.ErrInvalid)
}

// refused returns the error for a Failure that the client sent.
func refused(body []byte) error {
	var f message.Failure
	if err := message.Decode(body, &f); err != nil {
		return err
	}
	return fmt.Errorf("the peer refuses: %.300s: %w", f.Text, errs.ErrBadState)
}
