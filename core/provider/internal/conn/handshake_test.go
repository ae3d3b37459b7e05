// SPDX-License-Identifier: MIT

package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

func goodHandshake() frame.Handshake {
	return frame.Handshake{Min: frame.Version, Max: frame.Version, Links: 1, Nonce: [16]byte{7}, Tx: 8, Private: []byte("hi")}
}

// TestPeersThatAnswerWrong dials a plain listener that answers a handshake with invalid bytes.
func TestPeersThatAnswerWrong(t *testing.T) {
	accept := frame.HandshakeReply{Version: frame.Version, Verdict: frame.Accepted, Tx: 8}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, fabric.ErrConnReset},
		{"another protocol", []byte("220 mail.example.org ready and waiting for you\r\n"), fabric.ErrProtocol},
		{"half of it", accept.Append(nil)[:9], fabric.ErrConnReset},
		{"no verdict", (&frame.HandshakeReply{Version: frame.Version, Tx: 8}).Append(nil), fabric.ErrProtocol},
		{"another version", (&frame.HandshakeReply{Version: frame.Version + 1, Verdict: frame.Accepted, Tx: 8}).Append(nil), fabric.ErrProtocol},
		{"no ops", (&frame.HandshakeReply{Version: frame.Version, Verdict: frame.Accepted}).Append(nil), fabric.ErrProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			r.must(err)
			defer ln.Close()
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = frame.ReadHandshake(conn)
				_, _ = conn.Write(c.b)
				_ = conn.Close()
			}()
			if _, err = r.ep.Connect(r.ctx, fabric.Addr(ln.Addr().String()), nil); !errors.Is(err, c.want) {
				t.Fatalf("connect: %v, want %v", err, c.want)
			}
			// The endpoint may try again.
			ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
			defer cancel()
			if _, err = r.ep.Connect(ctx, r.ln.Addr(), nil); !errors.Is(err, fabric.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("second connect: %v", err)
			}
		})
	}
}

// TestAttachThatFails lets the passive side's Attach fail. Neither side is connected.
func TestAttachThatFails(t *testing.T) {
	r := newRig(t, func(Port, any) (DataPath, error) { return nil, fmt.Errorf("no way: %w", fabric.ErrPerm) })
	dialer := newRig(t, nil)
	got := make(chan error, 1)
	go func() {
		_, err := dialer.ep.Connect(dialer.ctx, r.ln.Addr(), nil)
		got <- err
	}()
	req, err := r.ln.Accept(r.ctx)
	r.must(err)
	if err := r.ep.Accept(r.ctx, req, nil); !errors.Is(err, fabric.ErrPerm) {
		t.Errorf("accept: %v", err)
	}
	if err := <-got; !errors.Is(err, fabric.ErrConnReset) {
		t.Errorf("connect: %v", err)
	}
}
