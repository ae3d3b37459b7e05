// SPDX-License-Identifier: MIT

package handshake

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

const testDeadline = 30 * time.Second

// loopback is a Transport without options.
type loopback struct{}

func (loopback) Listen(_ context.Context, _ fabric.Addr) (net.Listener, error) {
	return net.Listen("tcp", "127.0.0.1:0")
}

func (loopback) Dial(ctx context.Context, to fabric.Addr) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", string(to))
}

func (loopback) Prelude(net.Conn, bool) (any, error) { return nil, nil }
func (loopback) Addr(a net.Addr) fabric.Addr         { return fabric.Addr(a.String()) }

// A logBuffer keeps what was logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) waitFor(tb testing.TB, text string) {
	tb.Helper()
	for end := time.Now().Add(testDeadline); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		s := l.b.String()
		l.mu.Unlock()
		if strings.Contains(s, text) {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("the log does not say %q:\n%s", text, s)
		}
	}
}

// A rig is a listener and its log.
type rig struct {
	testing.TB
	ctx context.Context
	log *logBuffer
	ln  *Listener
}

func newRig(tb testing.TB, wait time.Duration) *rig {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	r := &rig{TB: tb, ctx: ctx, log: &logBuffer{}}
	logger := slog.New(slog.NewTextHandler(r.log, nil))
	closed := 0
	ln, err := Listen(ctx, Config{
		Transport: loopback{}, Provider: "test", Wait: wait, Closed: func() { closed++ },
		Log: func(level slog.Level, msg string, args ...any) { logger.Log(context.Background(), level, msg, args...) },
	}, "")
	r.must(err)
	r.ln = ln
	tb.Cleanup(func() {
		cancel()
		r.must(ln.Close())
		if closed != 1 {
			tb.Errorf("the listener reported %d times that it closed, want once", closed)
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// connect dials the listener and accepts.
func (r *rig) connect() {
	r.Helper()
	accepted := make(chan error, 1)
	go func() {
		req, err := r.ln.Accept(r.ctx)
		if err == nil {
			var s *Sockets
			if s, err = req.(*Request).Take(); err == nil {
				err = s.Accept(r.ctx, frame.HandshakeReply{Tx: 3, Private: []byte("there")})
				defer s.Close()
			}
		}
		accepted <- err
	}()
	s, private, err := Dial(r.ctx, loopback{}, r.ln.Addr(), 1, frame.Handshake{Tx: 8, Private: []byte("here")})
	r.must(err)
	s.Close()
	if string(private) != "there" || s.PeerTx != 3 {
		r.Errorf("reply %q of a peer with %d ops, want there and 3", private, s.PeerTx)
	}
	r.must(<-accepted)
}

// good returns a handshake that a listener accepts.
func good() frame.Handshake {
	return frame.Handshake{Min: frame.Version, Max: frame.Version, Links: 1, Nonce: [16]byte{7}, Tx: 8, Private: []byte("hi")}
}
