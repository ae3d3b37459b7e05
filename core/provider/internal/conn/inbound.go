// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"

	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// Begin takes a frame and says where its payload goes; see socket.Owner. What only concerns one op
// is answered.
func (c *channel) Begin(in *socket.Incoming) error {
	h := &in.H
	if h.Flags&frame.FlagCompressed != 0 && c.ep.cfg.can()&frame.FeatureDecompress == 0 {
		return frame.ProtocolErr("compressed payload of %s, which was not told that it may", c.ep.peer)
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
		return c.answers.pull(h)
	case frame.KindBody:
		return c.messages.beginBody(in)
	case frame.KindCredit:
		return c.answers.credit(h)
	}
	return c.onExtension(in)
}

// Finish ends a frame whose payload is in place; see socket.Owner.
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

// answerFirst is the payload before whose reading queued answers are sent.
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
