// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

// A request is a peer's wish to connect, with all its sockets.
type request struct {
	handshake frame.Handshake // of socket 0
	conns     []net.Conn
	extra     any
	peer      fabric.Addr
	taken     atomic.Bool
	gone      atomic.Bool   // the peer gave up
	watched   chan struct{} // closed when nobody reads conns[0] any more
}

var _ fabric.ConnReq = (*request)(nil)

// Peer is the address of the peer that asks.
func (r *request) Peer() fabric.Addr { return r.peer }

// Private is the peer's private data.
func (r *request) Private() []byte { return r.handshake.Private }

// Reject refuses; see fabric.ConnReq.
func (r *request) Reject(private []byte) error {
	if len(private) > frame.MaxPrivate {
		return fmt.Errorf("reject with %d bytes of private data, limit is %d: %w", len(private), frame.MaxPrivate, fabric.ErrTooSmall)
	}
	return r.answer(&frame.HandshakeReply{Verdict: frame.Rejected, Private: private})
}

// watch frees the sockets of a request whose peer gives up before it is answered. Until then a peer
// sends nothing.
func (r *request) watch() {
	r.watched = make(chan struct{})
	go func() {
		defer close(r.watched)
		var b [1]byte
		_, err := r.conns[0].Read(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return // taken
		}
		r.gone.Store(true)
		closeAll(r.conns)
		release(r.extra)
	}()
}

// take makes the caller end the request.
func (r *request) take() error {
	if r.taken.Swap(true) {
		return fmt.Errorf("answer request of %s a second time: %w", r.peer, fabric.ErrInvalid)
	}
	// An error of SetReadDeadline means a closed socket, which the watcher sees, too.
	_ = r.conns[0].SetReadDeadline(time.Unix(1, 0))
	<-r.watched
	if r.gone.Load() {
		return fmt.Errorf("answer request of %s, which is gone: %w", r.peer, fabric.ErrConnReset)
	}
	return r.conns[0].SetReadDeadline(time.Time{})
}

// answer ends the request by a refusal.
func (r *request) answer(a *frame.HandshakeReply) error {
	if err := r.take(); err != nil {
		return err
	}
	defer closeAll(r.conns)
	defer release(r.extra)
	if err := r.conns[0].SetDeadline(time.Now().Add(handshakeWait)); err != nil {
		return fmt.Errorf("answer %s: %w", r.peer, err)
	}
	if _, err := r.conns[0].Write(a.Append(nil)); err != nil {
		return fmt.Errorf("answer %s: %w", r.peer, err)
	}
	return nil
}

// release frees what Prelude returned for a connection that no DataPath has taken over: descriptors
// and mappings would otherwise stay until the next garbage collection.
func release(extra any) {
	if r, ok := extra.(interface{ Release() }); ok {
		r.Release()
	}
}
