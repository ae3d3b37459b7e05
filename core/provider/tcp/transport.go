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
	return lc.Listen(ctx, "tcp", string(at))
}

// Dial connects to "host:port".
func (t transport) Dial(ctx context.Context, to fabric.Addr) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", string(to))
}

// The keepalive of idle connections: a host that vanished without a word is noticed within a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6}

// Prelude sets the socket's options.
func (t transport) Prelude(conn net.Conn, _ bool) (any, error) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("use %T as a TCP connection: %w", conn, fabric.ErrInvalid)
	}
	if err := c.SetNoDelay(true); err != nil {
		return nil, err
	}
	if err := c.SetKeepAliveConfig(keepAlive); err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(t.opts.UserTimeout.Milliseconds()))
	})
	if err == nil {
		err = serr
	}
	return nil, err
}

// Addr is "host:port".
func (t transport) Addr(a net.Addr) fabric.Addr { return fabric.Addr(a.String()) }
