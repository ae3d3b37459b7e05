// SPDX-License-Identifier: MIT

package handshake

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"mori/core/provider/internal/endtest"
	"mori/core/provider/internal/frame"
)

const testDeadline = 30 * time.Second

// A rig is a listener and its log.
type rig struct {
	testing.TB
	ctx context.Context
	log *endtest.Log
	ln  *Listener
}

func newRig(tb testing.TB, wait time.Duration) *rig {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	r := &rig{TB: tb, ctx: ctx, log: &endtest.Log{}}
	logger := slog.New(slog.NewTextHandler(r.log, nil))
	closed := 0
	ln, err := Listen(ctx, Config{
		Transport: endtest.Loopback{}, Provider: "test", Wait: wait, Closed: func() { closed++ },
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
	s, private, err := Dial(r.ctx, endtest.Loopback{}, r.ln.Addr(), 1, frame.Handshake{Tx: 8, Private: []byte("here")})
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
