// SPDX-License-Identifier: MIT

package handshake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/frame"
)

// A Request is a peer's request to connect, with all its sockets. It implements fabric.ConnReq.
type Request struct {
	handshake frame.Handshake // of the first socket
	sockets   Sockets
	taken     atomic.Bool
	gone      atomic.Bool   // the peer gave up
	watched   chan struct{} // closed when nobody reads the first socket any more
}

var _ fabric.ConnReq = (*Request)(nil)

// Peer is the address of the peer that asks.
func (r *Request) Peer() fabric.Addr { return r.sockets.Peer }

// Private is the peer's private data.
func (r *Request) Private() []byte { return r.handshake.Private }

// Reject refuses; see fabric.ConnReq.
func (r *Request) Reject(private []byte) error {
	if err := util.CheckPrivate(private, frame.MaxPrivate); err != nil {
		return fmt.Errorf("reject: %w", err)
	}
	return r.refuse(&frame.HandshakeReply{Verdict: frame.Rejected, Private: private})
}

// Take makes the caller the one that answers the request, with Accept. The sockets and Extra are
// the caller's from then on.
func (r *Request) Take() (*Sockets, error) {
	if err := r.take(); err != nil {
		return nil, err
	}
	return &r.sockets, nil
}

// Accept sends the reply a with the verdict Accepted to the peer of a request that was taken.
func (s *Sockets) Accept(ctx context.Context, a frame.HandshakeReply) error {
	a.Version, a.Verdict = frame.Version, frame.Accepted
	return within(ctx, s.Conns[0], func() error {
		_, err := s.Conns[0].Write(a.Append(nil))
		return err
	})
}

// watch closes the sockets of a request whose peer gives up before it is answered. Until then a
// peer sends nothing.
func (r *Request) watch() {
	r.watched = make(chan struct{})
	go func() {
		defer close(r.watched)
		var b [1]byte
		_, err := r.sockets.Conns[0].Read(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return // taken
		}
		r.gone.Store(true)
		r.sockets.Close()
		Release(r.sockets.Extra)
	}()
}

func (r *Request) take() error {
	if r.taken.Swap(true) {
		return fmt.Errorf("answer a request of %s a second time: %w", r.Peer(), fabric.ErrInvalid)
	}
	// An error of SetReadDeadline means a closed socket, which the watcher sees, too.
	_ = r.sockets.Conns[0].SetReadDeadline(time.Unix(1, 0))
	<-r.watched
	if r.gone.Load() {
		return fmt.Errorf("answer a request of %s, which is closed: %w", r.Peer(), fabric.ErrConnReset)
	}
	return r.sockets.Conns[0].SetReadDeadline(time.Time{})
}

// refuse ends the request with a refusal.
func (r *Request) refuse(a *frame.HandshakeReply) error {
	if err := r.take(); err != nil {
		return err
	}
	defer r.sockets.Close()
	defer Release(r.sockets.Extra)
	conn := r.sockets.Conns[0]
	if err := conn.SetDeadline(time.Now().Add(DefaultWait)); err != nil {
		return fmt.Errorf("answer %s: %w", r.Peer(), err)
	}
	if _, err := conn.Write(a.Append(nil)); err != nil {
		return fmt.Errorf("answer %s: %w", r.Peer(), err)
	}
	return nil
}
