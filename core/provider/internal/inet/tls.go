// SPDX-License-Identifier: MIT

package inet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
)

// The stream protocol reads and writes sockets itself, straight from and to registered memory.
// Under TLS it gets one end of a pair of unix sockets; two goroutines carry bytes between the other
// end and the TLS connection. On 2 cores that moves about 1 GB/s.

// greetWait bounds a TLS handshake on the passive side, maxGreeting how many run at a time.
const (
	greetWait   = 5 * time.Second
	maxGreeting = 128
)

// A tunnel is the plain end of a TLS connection.
type tunnel struct {
	*net.UnixConn
	local, remote net.Addr
	wire          net.Conn // under the TLS connection
}

func (t *tunnel) LocalAddr() net.Addr  { return t.local }
func (t *tunnel) RemoteAddr() net.Addr { return t.remote }

// encrypt makes a TLS connection over c. It closes c if that fails.
func encrypt(ctx context.Context, c net.Conn, cfg *tls.Config, active bool) (net.Conn, error) {
	var secure *tls.Conn
	if active {
		secure = tls.Client(c, cfg)
	} else {
		secure = tls.Server(c, cfg)
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", c.RemoteAddr(), handshakeFault(ctx, err))
	}
	ours, theirs, err := socketPair()
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	carry(secure, ours)
	return &tunnel{theirs, c.LocalAddr(), c.RemoteAddr(), c}, nil
}

// handshakeFault distinguishes a peer that has disconnected, such as a listener that closes in the
// meantime, from a peer whose certificate is refused.
func handshakeFault(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return fmt.Errorf("it closed the connection (it may have no TLS): %v: %w", err, fabric.ErrConnReset)
	}
	return fmt.Errorf("%v: %w", err, fabric.ErrAccess)
}

func socketPair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "tls")
		c, err := net.FileConn(f)
		_ = f.Close() // FileConn has its own descriptor
		if err != nil {
			return nil, nil, fmt.Errorf("use a pair of sockets: %w", err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1], nil
}

// carry copies bytes in both directions until either side has finished sending, and then closes
// both.
func carry(secure *tls.Conn, plain *net.UnixConn) {
	var both sync.WaitGroup
	both.Add(2)
	go func() {
		defer both.Done()
		_, _ = io.Copy(plain, struct{ io.Reader }{secure}) // an error ends the connection, as the stream then sees
		_ = plain.CloseWrite()
	}()
	go func() {
		defer both.Done()
		_, _ = io.Copy(struct{ io.Writer }{secure}, plain)
		_ = secure.CloseWrite()
		// The stream no longer reads what the peer still sends. The deadline bounds how long the
		// reader above may take to end.
		_ = secure.SetReadDeadline(time.Now().Add(greetWait))
	}()
	go func() {
		both.Wait()
		_ = secure.Close()
		_ = plain.Close()
	}()
}

// A greeter is a listener that returns connections after their TLS handshake. It runs several
// handshakes at a time.
type greeter struct {
	net.Listener
	cfg   *tls.Config
	ready func(net.Conn) error // sets the options
	warn  func(from net.Addr, err error)

	ctx   context.Context
	stop  context.CancelFunc
	done  chan net.Conn
	slots chan struct{}
	wg    sync.WaitGroup
	fatal error // set before done is closed
}

func newGreeter(l net.Listener, cfg *tls.Config, ready func(net.Conn) error, warn func(net.Addr, error)) *greeter {
	g := &greeter{Listener: l, cfg: cfg, ready: ready, warn: warn, done: make(chan net.Conn), slots: make(chan struct{}, maxGreeting)}
	g.ctx, g.stop = context.WithCancel(context.Background())
	go g.run()
	return g
}

func (g *greeter) run() {
	defer close(g.done)
	defer g.wg.Wait()
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			g.fatal = err
			return
		}
		select {
		case g.slots <- struct{}{}:
		case <-g.ctx.Done():
			_ = c.Close()
			continue
		}
		g.wg.Add(1)
		go g.greet(c)
	}
}

func (g *greeter) greet(c net.Conn) {
	defer g.wg.Done()
	defer func() { <-g.slots }()
	ctx, cancel := context.WithTimeout(g.ctx, greetWait)
	defer cancel()
	err := g.ready(c)
	var t net.Conn
	if err == nil {
		t, err = encrypt(ctx, c, g.cfg, false)
	} else {
		_ = c.Close()
	}
	if err != nil {
		if g.ctx.Err() == nil {
			g.warn(c.RemoteAddr(), err)
		}
		return
	}
	select {
	case g.done <- t:
	case <-g.ctx.Done():
		_ = t.Close()
	}
}

// Accept returns the next connection whose handshake has succeeded.
func (g *greeter) Accept() (net.Conn, error) {
	c, ok := <-g.done
	if !ok {
		return nil, g.fatal
	}
	return c, nil
}

// Close stops listening and ends handshakes in progress.
func (g *greeter) Close() error {
	g.stop()
	err := g.Listener.Close()
	g.wg.Wait()
	return err
}
