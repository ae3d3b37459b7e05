// SPDX-License-Identifier: MIT

// Package inet makes TCP connections for package conn, with or without TLS.
package inet

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/provider/internal/handshake"
)

// DefaultUserTimeout is the default for how long sent bytes may stay unacknowledged.
const DefaultUserTimeout = 30 * time.Second

// Sockets makes the connections. It is a handshake.Transport.
type Sockets struct {
	// Provider is the name of the provider, for the log.
	Provider string

	// UserTimeout is how long sent bytes may stay unacknowledged before the connection is
	// considered dead.
	UserTimeout time.Duration

	// TLS, if set, encrypts every connection, and says which certificates are shown and trusted.
	TLS *tls.Config

	// Logger gets one line for each handshake that fails.
	Logger *slog.Logger
}

var _ handshake.Transport = Sockets{}

// Listen listens at "host:port", or at a free port of the loopback interface.
func (t Sockets) Listen(ctx context.Context, at fabric.Addr) (net.Listener, error) {
	if at == "" {
		at = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", string(at))
	if err != nil || t.TLS == nil {
		return l, err
	}
	return newGreeter(l, t.TLS, t.tune, func(from net.Addr, err error) {
		t.Logger.Warn("connection refused", "provider", t.Provider, "from", from, "error", err)
	}), nil
}

// Dial connects to "host:port".
func (t Sockets) Dial(ctx context.Context, to fabric.Addr) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", string(to))
	if err != nil || t.TLS == nil {
		return c, err
	}
	if err := t.tune(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return encrypt(ctx, c, t.TLS, true)
}

// The keepalive of idle connections. A host that vanished without closing its sockets is detected
// within a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6}

// Prelude sets the socket's options, unless they were set before the TLS handshake.
func (t Sockets) Prelude(conn net.Conn, _ bool) (any, error) {
	if _, ok := conn.(*tunnel); ok {
		return nil, nil
	}
	return nil, t.tune(conn)
}

// tune sets the options of a TCP socket.
func (t Sockets) tune(conn net.Conn) error {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("use %T as a TCP connection: %w", conn, fabric.ErrInvalid)
	}
	if err := c.SetNoDelay(true); err != nil {
		return err
	}
	if err := c.SetKeepAliveConfig(keepAlive); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(t.UserTimeout.Milliseconds()))
	})
	if err == nil {
		err = serr
	}
	return err
}

// Addr returns "host:port".
func (t Sockets) Addr(a net.Addr) fabric.Addr { return fabric.Addr(a.String()) }

// CheckAddr returns an error if a is not "host:port".
func CheckAddr(a fabric.Addr) error {
	if _, _, err := net.SplitHostPort(string(a)); err != nil {
		return fmt.Errorf("%v: %w", err, fabric.ErrInvalid)
	}
	return nil
}

// Wire returns the TCP connection under c, or nil if c does not use TCP.
func Wire(c net.Conn) *net.TCPConn {
	if t, ok := c.(*tunnel); ok {
		c = t.wire
	}
	tcp, _ := c.(*net.TCPConn)
	return tcp
}
