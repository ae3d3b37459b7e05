// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"mori/core/fabric"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// A receiver posts receive buffers, because kernels only send. Its rings are in host memory.
type receiver struct {
	view   mlx5.ReceiveView
	posted uint64
	polled uint64
}

// post posts memory for the next message.
func (r *receiver) post(addr, n uint64, key uint32) error {
	if r.view.RQ == 0 {
		return fmt.Errorf("receive without Options.Receives: %w", ErrOrder)
	}
	if r.posted-r.polled >= 1<<r.view.RQLog {
		return fmt.Errorf("receive %d messages at once: %w", r.posted-r.polled+1, fabric.ErrAgain)
	}
	var entry [mlx5.ReceiveBytes]byte
	mlx5.Data{Bytes: uint32(n), Key: key, Addr: addr}.Put(entry[:])
	mlx5.Data{Key: mlx5.InvalidLKey}.Put(entry[mlx5.SegmentBytes:])
	at := r.view.RQ + (r.posted&(1<<r.view.RQLog-1))*mlx5.ReceiveBytes
	for i := 0; i < len(entry); i += 8 {
		sys.Store64(at+uint64(i), binary.LittleEndian.Uint64(entry[i:]))
	}
	r.posted++
	sys.Store32(r.view.DBR, bits.ReverseBytes32(uint32(r.posted)&0xffff)) // after the entry
	return nil
}

// poll reads a completion, if there is one.
func (r *receiver) poll() (c mlx5.CQE, ok bool) {
	at := r.view.CQ + (r.polled&(1<<r.view.RQLog-1))*mlx5.CQEBytes
	if !mlx5.Ready(byte(sys.Load64(at+56)>>56), r.polled, r.view.RQLog) {
		return c, false
	}
	c = mlx5.ParseCQE(sys.Bytes(at, mlx5.CQEBytes))
	r.polled++
	sys.Store32(r.view.CQDBR, bits.ReverseBytes32(uint32(r.polled)&0xffffff))
	return c, true
}

// receivePause is the polling interval: no wakeup comes with a message.
const receivePause = 20 * time.Microsecond

// An Arrival is a message that was received.
type Arrival struct {
	Bytes     uint32
	Immediate uint32
}

// Receive posts a part of the buffer for the next message from a kernel of the other side. It needs
// a NIC, and Options.Receives.
func (s *Side) Receive(offset, n uint64) error {
	b, err := s.part(offset, n)
	if err != nil {
		return err
	}
	l, ok := s.link.(*nicLink)
	if !ok || s.step < registered {
		return fmt.Errorf("receive over %s after step %d: %w", s.opts.Device, s.step, ErrOrder)
	}
	return l.receiver.post(b.addr, n, l.mine.LKey)
}

// Received waits for the next message, in the order of Receive.
func (s *Side) Received(ctx context.Context) (Arrival, error) {
	l, ok := s.link.(*nicLink)
	if !ok || s.ended || l.receiver.posted == l.receiver.polled {
		return Arrival{}, fmt.Errorf("wait for a message without Receive: %w", ErrOrder)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Limit)
	defer cancel()
	for {
		if c, ok := l.receiver.poll(); ok {
			return Arrival{Bytes: c.Bytes, Immediate: c.Imm}, c.Err()
		}
		select {
		case <-ctx.Done():
			return Arrival{}, fmt.Errorf("wait for message %d: %w: %w", l.receiver.polled+1, fabric.ErrTimeout, context.Cause(ctx))
		case <-time.After(receivePause):
		}
	}
}
