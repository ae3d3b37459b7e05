// SPDX-License-Identifier: MIT

package tcp

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
)

// A transport makes the sockets.
type transport struct{ opts Options }

// Listen listens at "host:port", or at a free port of the loopback interface.
func (t transport) Listen(ctx context.Context, at fabric.Addr) (net.Listener, error) {
	if at == "" {
		at = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", string(at))
	if err != nil || t.opts.TLS == nil {
		return l, err
	}
	return newGreeter(l, t.opts.TLS, t.tune, func(from net.Addr, err error) {
		t.opts.Logger.Warn("connection refused", "provider", "tcp", "from", from, "error", err)
	}), nil
}

// Dial connects to "host:port".
func (t transport) Dial(ctx context.Context, to fabric.Addr) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", string(to))
	if err != nil || t.opts.TLS == nil {
		return c, err
	}
	if err := t.tune(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return encrypt(ctx, c, t.opts.TLS, true)
}

// The keepalive of idle connections: a host that vanished without a word is noticed within a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6}

// Prelude sets the socket's options, unless that was done before the TLS handshake.
func (t transport) Prelude(conn net.Conn, _ bool) (any, error) {
	if _, ok := conn.(*tunnel); ok {
		return nil, nil
	}
	return nil, t.tune(conn)
}

// tune sets the options of a TCP socket.
func (t transport) tune(conn net.Conn) error {
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
		serr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(t.opts.UserTimeout.Milliseconds()))
	})
	if err == nil {
		err = serr
	}
	return err
}

// Addr is "host:port".
func (t transport) Addr(a net.Addr) fabric.Addr { return fabric.Addr(a.String()) }
