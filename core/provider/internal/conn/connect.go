// SPDX-License-Identifier: MIT

package conn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// handshakeWait bounds a handshake whose context has no deadline, and every handshake on the
// passive side.
const handshakeWait = 5 * time.Second

// Connect asks the listener at to; see fabric.Connector. Without a deadline in ctx it gives up
// after 5 seconds.
func (ep *Endpoint) Connect(ctx context.Context, to fabric.Addr, private []byte) ([]byte, error) {
	if err := ep.beginConnect(private); err != nil {
		return nil, err
	}
	ctx, cancel := ep.handshakeContext(ctx)
	defer cancel()
	conns, extra, a, err := ep.dial(ctx, to, private)
	if err == nil {
		err = ep.prepare(conns, extra, to, int(a.Tx), a.Features)
	}
	if err == nil {
		err = ep.launch()
	}
	if err != nil {
		closeAll(conns)
		ep.discard(extra)
		ep.state.ConnectFailed()
		return nil, ep.connectErr(ctx, to, err)
	}
	return a.Private, nil
}

func (ep *Endpoint) beginConnect(private []byte) error {
	if most := ep.limits.MaxPrivate; len(private) > most {
		return fmt.Errorf("connect with %d bytes of private data, limit is %d: %w", len(private), most, fabric.ErrTooSmall)
	}
	return ep.state.Connect()
}

// handshakeContext ends at the deadline, or when the endpoint is closed.
func (ep *Endpoint) handshakeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	cancelTime := context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancelTime = context.WithTimeout(ctx, handshakeWait)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-ep.shutdown.over:
			cancel(fabric.ErrClosed)
		case <-stop:
		}
	}()
	return ctx, func() {
		close(stop)
		cancel(nil)
		cancelTime()
	}
}

// endedEarly is why an endpoint ended before it was connected: it was closed, or its DataPath
// failed.
func (ep *Endpoint) endedEarly() error {
	if !ep.shutdown.isEnded() || errors.Is(ep.state.Configure(), fabric.ErrClosed) {
		return fabric.ErrClosed
	}
	return ep.shutdown.cause
}

// connectErr names the peer and the cause as a fabric error.
func (ep *Endpoint) connectErr(ctx context.Context, to fabric.Addr, err error) error {
	var reject *fabric.RejectError
	switch cause := context.Cause(ctx); {
	case errors.As(err, &reject):
		return err
	case cause == fabric.ErrClosed:
		return fmt.Errorf("connect to %s: %w", to, ep.endedEarly())
	case errors.Is(cause, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("connect to %s: no answer in time: %w", to, timeoutError{})
	case cause != nil:
		return fmt.Errorf("connect to %s: %w", to, canceledError{cause})
	}
	errno := fabric.ErrnoOf(err)
	switch errno {
	case fabric.ErrOther, fabric.Errno(syscall.EPIPE):
		errno = fabric.ErrConnReset // the peer closed in the middle of the handshake: io.EOF for a reader, EPIPE for a writer
	}
	return fmt.Errorf("connect to %s: %w", to, causeError{err, errno})
}

// A causeError is a system's error with the Errno for it.
type causeError struct {
	err   error
	errno fabric.Errno
}

func (e causeError) Error() string { return e.err.Error() }
func (e causeError) Unwrap() error { return e.errno }

// Is reports ErrBusy, too: another attempt may succeed.
func (e causeError) Is(target error) bool {
	return target == fabric.ErrBusy && errors.Is(e.err, target)
}

// A timeoutError is both fabric.ErrTimeout and context.DeadlineExceeded.
type timeoutError struct{}

func (timeoutError) Error() string        { return fabric.ErrTimeout.Error() }
func (timeoutError) Unwrap() error        { return fabric.ErrTimeout }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// A canceledError is both fabric.ErrCanceled and the context's cause.
type canceledError struct{ cause error }

func (e canceledError) Error() string        { return e.cause.Error() }
func (e canceledError) Unwrap() error        { return fabric.ErrCanceled }
func (e canceledError) Is(target error) bool { return errors.Is(e.cause, target) }

// discard releases what Prelude returned, unless a DataPath has taken it over.
func (ep *Endpoint) discard(extra any) {
	if ep.path == nil {
		release(extra)
	}
}

// dial connects all sockets and waits for the answer.
func (ep *Endpoint) dial(ctx context.Context, to fabric.Addr, private []byte) (conns []net.Conn, extra any, a frame.HandshakeReply, err error) {
	h := frame.Handshake{Min: frame.Version, Max: frame.Version, Links: uint8(ep.cfg.Links), Features: ep.can(), Tx: ep.tx(), Private: private}
	if _, err := rand.Read(h.Nonce[:]); err != nil {
		return nil, nil, a, fmt.Errorf("draw a nonce: %w", err)
	}
	for i := range ep.cfg.Links {
		conn, err := ep.cfg.Transport.Dial(ctx, to)
		if err != nil {
			return conns, extra, a, err
		}
		conns = append(conns, conn)
		h.Link = uint8(i)
		e, err := shakeHands(ctx, ep.cfg.Transport, conn, &h)
		if err != nil {
			return conns, extra, a, err
		}
		if i == 0 {
			extra = e
		} else {
			release(e)
		}
		h.Private = nil
	}
	err = within(ctx, conns[0], func() (err error) {
		a, err = frame.ReadHandshakeReply(conns[0])
		return err
	})
	if err == nil {
		err = refusal(&a, to)
	}
	return conns, extra, a, err
}

func shakeHands(ctx context.Context, t Transport, conn net.Conn, h *frame.Handshake) (extra any, err error) {
	err = within(ctx, conn, func() error {
		if extra, err = t.Prelude(conn, true); err != nil {
			return err
		}
		_, err := conn.Write(h.Append(nil))
		return err
	})
	if err != nil {
		release(extra)
		extra = nil
	}
	return extra, err
}

// within runs fn, whose reads and writes on conn end with ctx.
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

// refusal is the peer's reply as an error of Connect.
func refusal(a *frame.HandshakeReply, to fabric.Addr) error {
	switch a.Verdict {
	case frame.Accepted:
		return nil
	case frame.Rejected:
		return &fabric.RejectError{Peer: to, Data: a.Private}
	case frame.VersionMismatch:
		return fmt.Errorf("peer does not speak version %d: %q: %w", frame.Version, a.Private, fabric.ErrProtocol)
	}
	return fmt.Errorf("peer takes no more requests: %w (%w)", fabric.ErrConnRefused, fabric.ErrBusy)
}

// Accept answers req; see fabric.Connector.
func (ep *Endpoint) Accept(ctx context.Context, req fabric.ConnReq, private []byte) error {
	r, ok := req.(*request)
	if !ok {
		return fmt.Errorf("accept a request of another kind (%T): %w", req, fabric.ErrInvalid)
	}
	if err := ep.beginConnect(private); err != nil {
		return err
	}
	if err := r.take(); err != nil {
		ep.state.ConnectFailed()
		return err
	}
	ctx, cancel := ep.handshakeContext(ctx)
	defer cancel()
	err := ep.prepare(r.conns, r.extra, r.peer, int(r.handshake.Tx), r.handshake.Features)
	if err == nil {
		a := frame.HandshakeReply{Version: frame.Version, Verdict: frame.Accepted, Features: ep.can(), Tx: ep.tx(), Private: private}
		err = within(ctx, r.conns[0], func() error {
			_, err := r.conns[0].Write(a.Append(nil))
			return err
		})
		if err != nil && ep.path != nil {
			ep.path.Close(err)
		}
	}
	if err == nil {
		err = ep.launch()
	}
	if err != nil {
		closeAll(r.conns)
		ep.discard(r.extra)
		ep.state.ConnectFailed()
		return ep.connectErr(ctx, r.peer, err)
	}
	return nil
}

// can returns the features of this side.
func (ep *Endpoint) can() uint16 {
	if ep.domain.regions.TakesDevice() {
		return ep.cfg.can() | frame.FeatureDevice
	}
	return ep.cfg.can()
}

// tx is how many ops the peer may see under way.
func (ep *Endpoint) tx() uint16 { return uint16(ep.limits.TxSize + staging.MaxPieces) }

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close() // a handshake that is given up has nothing to lose
	}
}

// prepare makes the channels to a peer that may have peerTx pending ops and has the features
// peerCan. Nothing is read or sent yet.
func (ep *Endpoint) prepare(conns []net.Conn, extra any, peer fabric.Addr, peerTx int, peerCan uint16) error {
	ep.env = socket.Env{
		Peer: peer, PeerTx: peerTx, PeerFault: peerCan&frame.FeatureFault != 0,
		Ended: &ep.shutdown.ended, Over: ep.shutdown.over, Quit: ep.shutdown.quit, Space: ep.inbox.space,
	}
	var channels []*channel
	for i, conn := range conns {
		c := &channel{ep: ep, index: i}
		var err error
		if c.Stream, err = socket.New(c, &ep.env, conn); err != nil {
			return err
		}
		if peerCan&frame.FeatureDecompress != 0 && ep.cfg.Compress != CompressNever {
			c.Compress(socket.NewCompressor(ep.cfg.compression(), conn))
		}
		channels = append(channels, c)
	}
	ep.mu.Lock()
	ep.channels, ep.peer, ep.peerFault = channels, peer, ep.env.PeerFault
	if ep.peerDevice = peerCan&frame.FeatureDevice != 0; ep.peerDevice || ep.domain.regions.TakesDevice() {
		ep.pending.addPieces()
	}
	ep.mu.Unlock()
	if ep.cfg.Attach == nil {
		return nil
	}
	path, err := ep.cfg.Attach(ep, extra)
	if err != nil {
		return err
	}
	ep.path = path
	ep.messages, _ = path.(MessagePath)
	return nil
}

// launch lets frames flow. On an error the DataPath is stopped.
func (ep *Endpoint) launch() error {
	ep.mu.Lock()
	if ep.shutdown.isEnded() || !ep.state.Connected() {
		ep.mu.Unlock()
		err := ep.endedEarly()
		if ep.path != nil {
			ep.path.Close(err)
		}
		return err
	}
	ep.launched = true
	// The event comes before anything that the readers report.
	ep.queues.EQ.Push(fabric.Event{Kind: fabric.EventConnected, EP: ep})
	for _, c := range ep.channels {
		c.Open() // before anybody reads
	}
	if ep.path == nil {
		ep.poller = socket.Poll(ep.channels[0].Stream, ep.queues.Tx, ep.queues.Rx, &ep.shutdown)
	}
	for _, c := range ep.channels {
		c.start(c.readSocket)
	}
	var t todo
	ep.resume(&t)
	t.kick(ep.channels[0])
	final := ep.shutdown.final
	ep.mu.Unlock()
	if final != nil {
		ep.end(final.cause, true, final.frame)
	}
	if ep.shutdown.Enter() { // else the connection has ended already, and its end belongs to teardown
		ep.run(&t)
		ep.shutdown.Leave()
	}
	return nil
}
