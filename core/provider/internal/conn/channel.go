// SPDX-License-Identifier: MIT

package conn

import (
	"errors"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// A channel is the protocol of an Endpoint on one of its streams. It implements socket.Owner and
// hands each frame that arrives to the part that it concerns.
type channel struct {
	*socket.Stream
	ep      *Endpoint
	index   int  // wireIndex, or that of the socket
	goodbye bool // the peer's came; belongs to the reader

	writes   writes   // the peer's writes
	replies  replies  // the peer's reads and atomics
	messages messages // the peer's messages
	answers  answers  // to our ops

	// Credits of our reads. Guarded by Endpoint.mu.
	readsOut   int
	entriesOut int
	bytesOut   uint64
}

var _ socket.Owner = (*channel)(nil)

// newChannel returns a channel without a stream.
func newChannel(ep *Endpoint, index int) *channel {
	c := &channel{ep: ep, index: index}
	c.writes.c, c.replies.c, c.messages.c, c.answers.c = c, c, c, c
	return c
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
	return c.writes.holding(id) || c.replies.holding(id)
}

// abandon releases what a frame that did not arrive completely holds. The reader has stopped.
func (c *channel) abandon() {
	c.writes.abandon()
	c.messages.abandon()
}

// claim checks the right to segs and appends their memory to iov. The region is held open when the
// answer is 0.
func (c *channel) claim(h *frame.Header, segs []fabric.RSeg, want fabric.Access, iov []sys.Iovec) (*util.MR, []sys.Iovec, fabric.Errno) {
	mr, err := c.ep.domain.regions.Acquire(fabric.RegionKey{ID: h.Region, Secret: h.Secret}, want)
	if err != nil {
		return nil, iov, fabric.ErrnoOf(err)
	}
	for _, s := range segs {
		addr, err := mr.Range(s.Addr, s.Len)
		if err != nil {
			mr.Release()
			return nil, iov, fabric.ErrnoOf(err)
		}
		if s.Len > 0 {
			iov = append(iov, sys.Iovec{Addr: addr, Len: s.Len})
		}
	}
	return mr, iov, 0
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
	case c.goodbye && errors.Is(err, fabric.ErrConnReset):
		c.ep.awaitWire() // and the other sockets end by their own goodbyes
	default:
		c.ep.Fail(err)
	}
}
