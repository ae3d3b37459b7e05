// SPDX-License-Identifier: MIT

package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"mori/core/admission"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/message"
	"mori/io/internal/serial"
)

// A Client sends requests to one peer's Server. It connects when first needed, keeps the
// connection, and connects again if the connection is dead. It is safe for concurrent use and sends
// one request at a time.
type Client struct {
	self *Self
	peer descriptor.Engine
	near Near

	mu   serial.Mutex
	conn net.Conn
	last time.Time
}

// Near describes how a Client reaches a peer through the local socket of this host.
type Near struct {
	SameNode bool        // the peer is on this host
	First    func() bool // whether to try the local socket before the network
}

// NewClient returns a client for the engine that peer describes. It does not connect.
func NewClient(self *Self, peer descriptor.Engine, near Near) *Client {
	return &Client{self: self, peer: peer, near: near}
}

// ErrTurnedAway means that the peer's control plane refuses this engine, and will refuse every
// later attempt.
var ErrTurnedAway = fmt.Errorf("the peer's control plane refused the connection: %w", errs.ErrUnreachable)

// Greet does the handshake on a new connection and returns the peer's transports and a token for
// data connections.
func (c *Client) Greet(ctx context.Context) (w *message.Welcome, err error) {
	err = c.alone(ctx, func() error {
		w, err = c.connect(ctx)
		return err
	})
	return w, err
}

// Limit bounds one exchange of the control plane; 0 is no limit.
func Limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout > 0 {
		return context.WithTimeout(ctx, timeout)
	}
	return context.WithCancel(ctx)
}

// Region returns whether a region is registered, and its size in bytes.
func (c *Client) Region(ctx context.Context, key descriptor.RegionKey) (known bool, size uint64,
	err error) {
	var r message.Region
	q := message.AskRegion{ID: key.ID, Secret: key.Secret[:]}
	err = c.request(ctx, message.TypeAskRegion, &q, message.TypeRegion, &r)
	return r.Known, r.Size, err
}

// Drop makes the peer close the data connection of a token. When it returns nil, that connection
// can write no more bytes at the peer.
func (c *Client) Drop(ctx context.Context, token []byte) error {
	return c.request(ctx, message.TypeDrop, &message.Drop{Token: token}, message.TypeDropped,
		&message.Dropped{})
}

// SendTags sends the tags of transfers, at most message.MostTags.
func (c *Client) SendTags(ctx context.Context, all []message.Tag) error {
	return c.request(ctx, message.TypeTags, &message.Tags{Packed: message.PackTags(all)},
		message.TypeTagged, &message.Tagged{})
}

// Beat asks for a sign of life.
func (c *Client) Beat(ctx context.Context) error {
	return c.request(ctx, message.TypeBeat, &message.Beat{}, message.TypeBeat, &message.Beat{})
}

// Close closes the connection. It waits for a pending request.
func (c *Client) Close() {
	_ = c.mu.Lock(context.Background())
	defer c.mu.Unlock()
	c.disconnect()
}

// alone runs f with c.mu held. Its error names the cause if an earlier request is not answered in
// time.
func (c *Client) alone(ctx context.Context, f func() error) error {
	if err := c.mu.Lock(ctx); err != nil {
		return fmt.Errorf("the control plane of %q has not answered an earlier request: %w (%w)",
			c.peer.Key, err, errs.ErrUnreachable)
	}
	defer c.mu.Unlock()
	return f()
}

// request sends a request over the open connection, or over a new one if that is dead.
func (c *Client) request(ctx context.Context, kind message.Type, q any, want message.Type,
	answer any) error {
	return c.alone(ctx, func() error { return c.askAgain(ctx, kind, q, want, answer) })
}

// askAgain needs c.mu held.
func (c *Client) askAgain(ctx context.Context, kind message.Type, q any, want message.Type,
	answer any) error {
	if c.conn != nil && time.Since(c.last) < idleLimit/2 {
		if err := c.ask(ctx, kind, q, want, answer); err == nil {
			return nil
		}
	}
	if _, err := c.connect(ctx); err != nil {
		return err
	}
	if err := c.ask(ctx, kind, q, want, answer); err != nil {
		c.disconnect() // so that a late answer is not mistaken for that of the next request
		return fmt.Errorf("send a request to the control plane of %q: %w", c.peer.Key, err)
	}
	return nil
}

// ask sends one request and decodes its answer. It needs c.mu held.
func (c *Client) ask(ctx context.Context, kind message.Type, q any, want message.Type, answer any) error {
	limit, ok := ctx.Deadline()
	if !ok {
		limit = time.Time{}
	}
	if err := c.conn.SetDeadline(limit); err != nil {
		return err
	}
	conn := c.conn // the function below may run after c has disconnected
	unhook := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer unhook()
	if err := message.Write(c.conn, kind, q); err != nil {
		return err
	}
	got, body, err := message.Read(c.conn)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if got == message.TypeFailure {
		var f message.Failure
		if err := message.Decode(body, &f); err != nil {
			return err
		}
		return fmt.Errorf("refused: %s: %w", f.Text, ErrTurnedAway)
	}
	if got != want {
		return fmt.Errorf("reply of type %d instead of %d: %w", got, want, errs.ErrInvalid)
	}
	c.last = time.Now()
	return message.Decode(body, answer)
}

// MaxEvictions is how often a client retries if the peer closes the connection without an answer.
const MaxEvictions = 6

// connect calls attempt. It retries with back-off if the peer closes the connection before the
// handshake is complete. A peer does that to its oldest connections when it receives too many.
// connect needs c.mu held.
func (c *Client) connect(ctx context.Context) (w *message.Welcome, err error) {
	var pause admission.Backoff
	for range MaxEvictions {
		if w, err = c.attempt(ctx); !evicted(err) || !pause.Wait(ctx) {
			break
		}
	}
	return w, err
}

// evicted reports whether another attempt may succeed: the peer closed the connection without an
// answer, or bytes were altered in transit.
func evicted(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, message.ErrUnreadable)
}

// disconnect needs c.mu held.
func (c *Client) disconnect() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
