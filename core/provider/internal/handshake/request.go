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
	handshake frame.Handshake // from the first socket
	sockets   Sockets
	taken     atomic.Bool
	gone      atomic.Bool   // the peer gave up
	watched   chan struct{} // closed when watch no longer reads the first socket
}

var _ fabric.ConnReq = (*Request)(nil)

// Peer returns the address of the requesting peer.
func (r *Request) Peer() fabric.Addr { return r.sockets.Peer }

// Private returns the peer's private data.
func (r *Request) Private() []byte { return r.handshake.Private }

// Reject refuses the request; see fabric.ConnReq.
func (r *Request) Reject(private []byte) error {
	if err := util.CheckPrivate(private, frame.MaxPrivate); err != nil {
		return fmt.Errorf("reject: %w", err)
	}
	return r.refuse(&frame.HandshakeReply{Verdict: frame.Rejected, Private: private})
}

// Take gives the request to the caller, who must answer it with Accept. The caller then owns the
// sockets and Extra.
func (r *Request) Take() (*Sockets, error) {
	if err := r.take(); err != nil {
		return nil, err
	}
	return &r.sockets, nil
}

// Accept sends the reply a with the verdict Accepted. The request must have been taken.
func (s *Sockets) Accept(ctx context.Context, a frame.HandshakeReply) error {
	a.Version, a.Verdict = frame.Version, frame.Accepted
	return within(ctx, s.Conns[0], func() error {
		_, err := s.Conns[0].Write(a.Append(nil))
		return err
	})
}

// watch closes the sockets of a request if the peer gives up before it is answered. The peer sends
// no data until then.
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
	// An error of SetReadDeadline means that the socket is closed, which watch also sees.
	_ = r.sockets.Conns[0].SetReadDeadline(time.Unix(1, 0))
	<-r.watched
	if r.gone.Load() {
		return fmt.Errorf("answer a request of %s, which is closed: %w", r.Peer(), fabric.ErrConnReset)
	}
	return r.sockets.Conns[0].SetReadDeadline(time.Time{})
}

// refuse answers the request with a refusal and ends it.
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
