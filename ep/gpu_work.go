// SPDX-License-Identifier: MIT

package ep

import (
	"context"

	"mori/core/device"
)

const (
	mostStreams = 64
	mostEnds    = 4 * mostStreams
)

func (g *gpuSide) setStream(id uint64) {
	s := g.streams[id]
	if s == nil {
		if len(g.streams) >= mostStreams {
			g.mark()
			clear(g.streams)
			clear(g.used)
		}
		s = g.dev.BorrowStream(id)
		g.streams[id] = s
	}
	g.stream = s
}

// mark notes where the work ends that streams have of the op by now: afterwards their owners may destroy them. A stream that refuses is gone
// already, and so is its work.
func (g *gpuSide) mark() {
	if len(g.ends) >= mostEnds {
		g.forget()
	}
	for s := range g.used {
		e, err := g.dev.NewEvent()
		if err != nil {
			return
		}
		if e.Record(s) != nil {
			_ = e.Close()
			continue
		}
		g.ends = append(g.ends, e)
	}
}

// forget drops the ends that have come, and of the others the oldest until there is room.
func (g *gpuSide) forget() {
	left := g.ends[:0]
	for i, e := range g.ends {
		if done, err := e.Done(); !done && err == nil && len(g.ends)-i < mostEnds/2 {
			left = append(left, e)
			continue
		}
		_ = e.Close()
	}
	g.ends = left
}

// settle waits for all calls, whichever stream they are on. Kernels end by themselves: their waits are bounded.
func (g *gpuSide) settle() {
	g.mark()
	for _, e := range g.ends {
		_ = g.patiently(e.Wait)
		_ = e.Close()
	}
	g.ends = g.ends[:0]
	g.sent = sentNothing
}

// wait waits for a stream.
func (g *gpuSide) wait(s *device.Stream) error { return g.patiently(s.Wait) }

// patiently waits somewhat longer than kernels do for other ranks.
func (g *gpuSide) patiently(wait func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	if t := g.op.opts.Timeout; t > 0 {
		ctx, cancel = context.WithTimeout(ctx, t+grace)
	}
	defer cancel()
	return wait(ctx)
}
