// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// A channel is the protocol of an Endpoint on one of its streams: it executes the operations of the
// peer that arrive there, and takes the answers to ours. It implements socket.Owner.
type channel struct {
	*socket.Stream
	ep      *Endpoint
	index   int // wireIndex, or that of the socket
	rx      received
	replies replies

	// Credits of our reads. Guarded by Endpoint.mu.
	readsOut   int
	entriesOut int
	bytesOut   uint64
}

var _ socket.Owner = (*channel)(nil)

// A received is what the frame that arrives is about. It belongs to the reader, but for holds.
type received struct {
	goodbye bool // the peer's came

	mr      *util.MR       // of a write: held open
	errno   fabric.Errno   // of a write: the answer
	stuck   bool           // of a write: it waited for room
	landing *staging.Piece // of a write to device memory: it has mr

	op      *pendingOp // of a reply
	receive fabric.Op  // of a send or body: the receive that it fills
	into    bool       // of a send: receive is one
	early   []byte     // of a send: where it goes without one
	held    bool       // of a send: Feed.Hold keeps room for it

	holds atomic.Pointer[util.MR] // the region that payload is arriving in
}

// Written ends what a frame that was sent is about; see socket.Owner.
func (c *channel) Written(j *socket.Job) {
	switch {
	case j.Reply != nil:
		c.Dropped(j)
	case j.Op != nil && j.H.Kind != frame.KindOffer: // an offer's memory is read by its body
		if s := c.ep.pending.at(j.ID); s.mark(opWritten) {
			c.ep.complete(s)
		}
	case j.H.Kind == frame.KindExtension:
		c.ep.extra.Add(-int64(len(j.Body)))
	}
}

// Unsent ends an op whose frame was not sent; see socket.Owner.
func (c *channel) Unsent(j *socket.Job) {
	ep, s := c.ep, c.ep.pending.at(j.ID)
	if j.H.Kind == frame.KindSend {
		ep.mu.Lock()
		ep.sent -= s.n + eagerCost
		ep.mu.Unlock()
	}
	s.errno, s.detail = socket.Unreadable, unreadableText
	s.mark(opWritten)
	if s.mark(opAnswered) {
		ep.complete(s)
	}
}

// Unreadable makes the op of a job end with ErrFault; see socket.Owner.
func (c *channel) Unreadable(j *socket.Job) {
	if j.Op == nil {
		return
	}
	s := c.ep.pending.at(j.ID)
	s.unread.Store(true)
	if s.piece != nil {
		c.ep.pending.at(s.piece.Transfer().ID).unread.Store(true)
	}
}

// Dropped ends a reply; see socket.Owner.
func (c *channel) Dropped(j *socket.Job) { c.replies.end(j.Reply.(*reply)) }

// Fail ends the connection; see socket.Owner.
func (c *channel) Fail(err error) { c.ep.Fail(err) }

// holds reports whether the peer's reads and writes on this channel keep a region open.
func (c *channel) holds(id uint64) bool {
	if mr := c.rx.holds.Load(); mr != nil && mr.Key().ID == id {
		return true
	}
	return c.replies.hold(id)
}

// abandon releases what a frame that did not arrive completely holds. Nobody reads any more.
func (c *channel) abandon() {
	rx := &c.rx
	if rx.mr != nil {
		rx.mr.Release()
		rx.mr = nil
	}
	if rx.landing != nil {
		rx.landing.End()
		rx.landing = nil
	}
	if rx.held {
		c.ep.feed.Unhold(uint64(len(rx.early)))
		rx.held, rx.early = false, nil
	}
}

// start runs read and the writer until the connection ends.
func (c *channel) start(read func()) {
	f := &c.ep.shutdown
	f.readers.Add(1)
	f.writers.Add(1)
	go func() {
		defer c.ReadDone(&f.readers)
		read()
	}()
	go func() {
		defer c.WriteDone(&f.writers)
		c.Write()
	}()
}

// readSocket takes frames until the connection ends.
func (c *channel) readSocket() {
	err := c.Read()
	switch {
	case c.ep.shutdown.isEnded():
		c.DiscardRest()
	case c.rx.goodbye && errors.Is(err, fabric.ErrConnReset):
		c.ep.awaitWire() // and the other sockets end by their own goodbyes
	default:
		c.ep.Fail(err)
	}
}
