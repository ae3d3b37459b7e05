// SPDX-License-Identifier: MIT

package ep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/device"
	"mori/core/memory"
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

// An end is the place in a stream behind the kernels of a call.
type end struct {
	event *device.Event
	act   string // the call
}

// mark records where the work ends that streams have of the op by now: afterwards their owners may
// destroy them. A stream that refuses is gone already, and so is its work.
func (g *gpuSide) mark() {
	if len(g.ends) >= mostEnds {
		g.forget()
	}
	for s, act := range g.used {
		e, err := g.dev.NewEvent()
		if err != nil {
			return
		}
		if e.Record(s) != nil {
			_ = e.Close()
			continue
		}
		g.ends = append(g.ends, end{e, act})
	}
}

// forget drops the ends that have come, and of the others the oldest until there is room.
func (g *gpuSide) forget() {
	left := g.ends[:0]
	for i, e := range g.ends {
		if done, err := e.event.Done(); !done && err == nil && len(g.ends)-i < mostEnds/2 {
			left = append(left, e)
			continue
		}
		_ = e.event.Close()
	}
	g.ends = left
}

// afterAbort is how long kernels may take to end once they are aborted. Their waits look for it
// every millisecond.
const afterAbort = time.Second

// settle waits for all calls, whichever stream they are on. Their kernels end by themselves, as
// their waits are bounded; those of a broken op, and those that do not end in time, are aborted.
// The error names a kernel that does not end even then, and wraps device.ErrTimeout: the memory
// that it uses must not be freed.
func (g *gpuSide) settle() error {
	g.mark()
	if g.op.look(); g.op.isBroken() {
		g.abort()
	}
	for _, e := range g.ends {
		if err := g.settleOne(e); err != nil {
			return err
		}
	}
	for _, e := range g.ends {
		_ = e.event.Close()
	}
	g.ends = g.ends[:0]
	g.sent = sentNothing
	return nil
}

// settleOne waits for one end. An error other than a timeout is the device's, which then runs
// nothing any more.
func (g *gpuSide) settleOne(e end) error {
	if !g.aborting() {
		if err := waitAtMost(g.patience(), e.event.Wait); !errors.Is(err, device.ErrTimeout) {
			return nil
		}
		g.abort()
	}
	if err := waitAtMost(afterAbort, e.event.Wait); errors.Is(err, device.ErrTimeout) {
		return fmt.Errorf("the kernel of %s of rank %d does not end, though it was aborted: %w", e.act, g.op.cfg.Rank, err)
	}
	return nil
}

// abort has the waits of all kernels end that run now or begin later.
func (g *gpuSide) abort() { memory.Store32(g.notice.Addr()+noticeAbort, 1) }

func (g *gpuSide) aborting() bool { return g.word32(noticeAbort) != 0 }

// watch aborts the kernels when a rank that they may wait for has died.
func (g *gpuSide) watch() {
	defer close(g.watched)
	select {
	case <-g.op.world.Broken():
		g.op.mu.Lock()
		defer g.op.mu.Unlock()
		if g.lost() != nil {
			g.abort()
		}
	case <-g.op.world.Ended():
	case <-g.stop:
	}
}

// unwatch ends watch.
func (g *gpuSide) unwatch() {
	if g.stop != nil {
		close(g.stop)
		<-g.watched
		g.stop = nil
	}
}

// wait waits for a stream, somewhat longer than kernels do for other ranks.
func (g *gpuSide) wait(s *device.Stream) error { return waitAtMost(g.patience(), s.Wait) }

// patience is how long a stream gets: more than the waits of a kernel last.
func (g *gpuSide) patience() time.Duration {
	if t := g.op.opts.Timeout; t > 0 {
		return t + grace
	}
	return defaultTimeout + grace
}

func waitAtMost(limit time.Duration, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return wait(ctx)
}
