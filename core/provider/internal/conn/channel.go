// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// A channel runs the protocol of an Endpoint on one of its streams. It implements socket.Owner and
// passes each incoming frame to writes, replies, messages or answers.
type channel struct {
	*socket.Stream
	ep      *Endpoint
	index   int  // wireIndex, or the index of the socket
	goodbye bool // the peer's goodbye has arrived; used by the reader only

	writes   writes   // the peer's writes
	replies  replies  // the peer's reads and atomics
	messages messages // the peer's messages
	answers  answers  // to our ops

	credit readCredit // of our reads
}

var _ socket.Owner = (*channel)(nil)

// newChannel returns a channel that has no stream yet.
func newChannel(ep *Endpoint, index int) *channel {
	c := &channel{ep: ep, index: index}
	c.writes.c, c.replies.c, c.messages.c, c.answers.c = c, c, c, c
	return c
}

// Written completes what the sent frame belongs to: an op, a reply or an extension frame; see
// socket.Owner.
func (c *channel) Written(j *socket.Job) {
	switch {
	case j.Reply != nil:
		c.Dropped(j)
	case j.Op != nil && j.H.Kind != frame.KindOffer: // the body frame of an offer reads its memory
		if s := c.ep.out.pending.at(j.ID); s.mark(opWritten) {
			c.ep.out.complete(s)
		}
	case j.H.Kind == frame.KindExtension:
		c.ep.extensions.queued.Add(-int64(len(j.Body)))
	}
}

// Unsent fails an op whose frame was not sent; see socket.Owner.
func (c *channel) Unsent(j *socket.Job) {
	out := &c.ep.out
	s := out.pending.at(j.ID)
	if j.H.Kind == frame.KindSend {
		out.unsent(s)
	}
	s.errno, s.detail = socket.Unreadable, unreadableText
	s.mark(opWritten)
	if s.mark(opAnswered) {
		out.complete(s)
	}
}

// Unreadable makes the op of a job end with ErrFault; see socket.Owner.
func (c *channel) Unreadable(j *socket.Job) {
	if j.Op == nil {
		return
	}
	pending := &c.ep.out.pending
	s := pending.at(j.ID)
	s.unread.Store(true)
	if s.piece != nil {
		pending.at(s.piece.Transfer().ID).unread.Store(true)
	}
}

// Dropped ends a reply; see socket.Owner.
func (c *channel) Dropped(j *socket.Job) { c.replies.end(j.Reply.(*reply)) }

// Fail ends the connection; see socket.Owner.
func (c *channel) Fail(err error) { c.ep.fail(err) }

// holds reports whether the peer's reads and writes on this channel keep a region open.
func (c *channel) holds(id uint64) bool {
	return c.writes.holding(id) || c.replies.holding(id)
}

// abandon releases what a partly received frame holds. The reader has stopped.
func (c *channel) abandon() {
	c.writes.abandon()
	c.messages.abandon()
}

// claim checks the peer's key, rights and ranges for segs and appends their memory to iov. If the
// errno is 0, the region is held open and the caller releases it.
func (c *channel) claim(h *frame.Header, segs []fabric.RSeg, want fabric.Access, iov []sys.Iovec) (*regions.MR, []sys.Iovec, fabric.Errno) {
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

// start runs read and the writer, each on its own goroutine, until the connection ends.
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

// readSocket reads frames until the connection ends.
func (c *channel) readSocket() {
	err := c.Read()
	switch {
	case c.ep.shutdown.isEnded():
		c.DiscardRest()
	case c.goodbye && errors.Is(err, fabric.ErrConnReset):
		c.ep.awaitWire() // the other sockets end with their own goodbyes
	default:
		c.ep.fail(err)
	}
}

// Begin starts an incoming frame and sets where its payload goes; see socket.Owner. An error that
// concerns a single op is sent to the peer as that op's answer.
func (c *channel) Begin(in *socket.Incoming) error {
	h := &in.H
	if h.Flags&frame.FlagCompressed != 0 && c.ep.cfg.can()&frame.FeatureDecompress == 0 {
		return frame.ProtocolErr("compressed payload of %s, which was not allowed to compress", c.ep.peer)
	}
	switch h.Kind {
	case frame.KindWrite:
		return c.writes.begin(in)
	case frame.KindRead:
		return c.replies.read(in)
	case frame.KindAtomic:
		return c.replies.atomic(in)
	case frame.KindReply:
		return c.answers.beginReply(in)
	case frame.KindAck:
		return c.answers.ack(in)
	case frame.KindGoodbye:
		return c.onGoodbye(h)
	case frame.KindTurn:
		return c.onTurn()
	}
	if c.index != 0 && !c.IsWire() || c.IsWire() && h.Kind == frame.KindExtension {
		return frame.ProtocolErr("%v frame of %s on link %d", h.Kind, c.ep.peer, c.index)
	}
	switch h.Kind {
	case frame.KindSend, frame.KindOffer:
		if err := c.inTurn(); err != nil {
			return err
		}
	}
	switch h.Kind {
	case frame.KindSend:
		return c.messages.begin(in)
	case frame.KindOffer:
		return c.messages.offer(h)
	case frame.KindPull:
		return c.ep.out.pulled(c, c.ep.out.find(c, h.Ticket, false), h)
	case frame.KindBody:
		return c.messages.beginBody(in)
	case frame.KindCredit:
		return c.ep.out.credited(c, h.Data)
	}
	return c.onExtension(in)
}

// Finish completes a frame whose payload has been received; see socket.Owner.
func (c *channel) Finish(in *socket.Incoming) error {
	switch in.H.Kind {
	case frame.KindWrite:
		return c.writes.end(in)
	case frame.KindReply:
		return c.answers.endReply(in)
	case frame.KindSend:
		return c.messages.end(in)
	case frame.KindBody:
		return c.messages.endBody(in)
	}
	return nil
}

// answerFirst is a payload size in bytes: before reading a longer payload, the reader sends the
// queued answers.
const answerFirst = 128 << 10

func (c *channel) onExtension(in *socket.Incoming) error {
	h := &in.H
	if c.ep.path == nil {
		return frame.ProtocolErr("extension frame of %s", c.ep.peer)
	}
	body, err := in.Take(int(h.Length))
	if err != nil {
		return err
	}
	if frame.Checksum(0, body) != h.TableChecksum {
		return in.Altered()
	}
	if err := c.ep.path.Frame(uint8(h.Count), body); err != nil {
		return fmt.Errorf("extension frame %d of %s: %w", h.Count, c.ep.peer, err)
	}
	return nil
}

// logDevice logs why a peer's op failed on a device. The peer gets only the errno.
func (c *channel) logDevice(err error) {
	var errno fabric.Errno
	if !errors.As(err, &errno) {
		stagingPort{c.ep}.Log("a peer's op on GPU memory failed", err)
	}
}
