// SPDX-License-Identifier: MIT

package mlx5test

import (
	"fmt"
	"time"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
	"mori/core/internal/sys/thread"
)

// A Receiver posts receive entries and reads their completions. It is not safe for concurrent use.
type Receiver struct {
	view   mlx5.ReceiveView
	posted uint64
	polled uint64
}

// NewReceiver returns a Receiver for a queue that has a receive queue.
func NewReceiver(q *mlx5.Queue) *Receiver { return &Receiver{view: q.ReceiveView()} }

// Post posts memory, one or two parts, for the next message.
func (r *Receiver) Post(parts ...Span) error {
	if r.posted-r.polled >= 1<<r.view.RQLog {
		return ErrFull
	}
	var b [mlx5.ReceiveBytes]byte
	mlx5.Data{Key: mlx5.InvalidLKey}.Put(b[mlx5.SegmentBytes:])
	for i, s := range parts {
		mlx5.Data{Bytes: s.N, Key: s.Key, Addr: s.Addr}.Put(b[i*mlx5.SegmentBytes:])
	}
	store(r.view.RQ+(r.posted&(1<<r.view.RQLog-1))*mlx5.ReceiveBytes, b[:])
	r.posted++
	sys.Store32(r.view.DBR, swap32(uint32(r.posted)&0xffff))
	return nil
}

// Poll reads a completion, if there is one.
func (r *Receiver) Poll() (c mlx5.CQE, ok bool) {
	at := r.view.CQ + (r.polled&(1<<r.view.RQLog-1))*mlx5.CQEBytes
	if !mlx5.Ready(byte(sys.Load64(at+56)>>56), r.polled, r.view.RQLog) {
		return c, false
	}
	c = mlx5.ParseCQE(sys.Bytes(at, mlx5.CQEBytes))
	r.polled++
	sys.Store32(r.view.CQDBR, swap32(uint32(r.polled)&0xffffff))
	return c, true
}

// Next waits for a completion.
func (r *Receiver) Next(timeout time.Duration) (mlx5.CQE, error) {
	end := time.Now().Add(timeout)
	for n := 0; ; n++ {
		if c, ok := r.Poll(); ok {
			return c, c.Err()
		}
		if n%64 == 63 {
			thread.Yield()
			if time.Now().After(end) {
				return mlx5.CQE{}, fmt.Errorf("nothing was received in %v", timeout)
			}
		}
	}
}
