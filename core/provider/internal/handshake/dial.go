// SPDX-License-Identifier: MIT

package handshake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

// Dial connects links sockets to the listener at to and sends h on each. It waits for the reply and
// returns the sockets and the peer's private data. On an error it closes the sockets and releases
// what Prelude returned. A RejectError means that the peer refused.
func Dial(ctx context.Context, t Transport, to fabric.Addr, links int, h frame.Handshake) (*Sockets, []byte, error) {
	s := &Sockets{Peer: to}
	a, err := s.dial(ctx, t, links, h)
	if err == nil {
		err = refusal(&a, to)
	}
	if err != nil {
		s.Close()
		Release(s.Extra)
		return nil, nil, err
	}
	s.PeerTx, s.Features = int(a.Tx), a.Features
	return s, a.Private, nil
}

func (s *Sockets) dial(ctx context.Context, t Transport, links int, h frame.Handshake) (a frame.HandshakeReply, err error) {
	h.Min, h.Max, h.Links = frame.Version, frame.Version, uint8(links)
	if _, err := rand.Read(h.Nonce[:]); err != nil {
		return a, fmt.Errorf("generate a nonce: %w", err)
	}
	for i := range links {
		conn, err := t.Dial(ctx, s.Peer)
		if err != nil {
			return a, err
		}
		s.Conns = append(s.Conns, conn)
		h.Link = uint8(i)
		extra, err := send(ctx, t, conn, &h)
		if err != nil {
			return a, err
		}
		if i == 0 {
			s.Extra = extra
		} else {
			Release(extra)
		}
		h.Private = nil
	}
	err = within(ctx, s.Conns[0], func() (err error) {
		a, err = frame.ReadHandshakeReply(s.Conns[0])
		return err
	})
	return a, err
}

// send runs the prelude on conn and sends h.
func send(ctx context.Context, t Transport, conn net.Conn, h *frame.Handshake) (extra any, err error) {
	err = within(ctx, conn, func() error {
		if extra, err = t.Prelude(conn, true); err != nil {
			return err
		}
		_, err := conn.Write(h.Append(nil))
		return err
	})
	if err != nil {
		Release(extra)
		extra = nil
	}
	return extra, err
}

// within runs fn. When ctx ends, fn's reads and writes on conn fail.
func within(ctx context.Context, conn net.Conn, fn func() error) error {
	if t, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(t); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // fails only on a closed connection
	})
	err := fn()
	if !stop() {
		return errors.Join(err, ctx.Err())
	}
	if err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// refusal converts the peer's refusal to an error of Dial.
func refusal(a *frame.HandshakeReply, to fabric.Addr) error {
	switch a.Verdict {
	case frame.Accepted:
		return nil
	case frame.Rejected:
		return &fabric.RejectError{Peer: to, Data: a.Private}
	case frame.VersionMismatch:
		return fmt.Errorf("peer does not support version %d: %q: %w", frame.Version, a.Private, fabric.ErrProtocol)
	}
	return fmt.Errorf("peer accepts no more requests: %w (%w)", fabric.ErrConnRefused, fabric.ErrBusy)
}
