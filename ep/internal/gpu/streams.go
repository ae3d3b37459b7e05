// SPDX-License-Identifier: MIT

package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/device"
)

const (
	mostStreams = 64
	mostEnds    = 4 * mostStreams

	grace      = 10 * time.Second // added to the wait of a kernel when the host waits for a stream
	untimed    = 30 * time.Second // the wait of a kernel, for this sum, if it is unbounded
	afterAbort = time.Second      // until kernels end after an abort, which they poll each millisecond
)

// streams are the streams of the caller that calls were queued on.
type streams struct {
	dev     *device.Device
	current *device.Stream // of the calls from now on
	known   map[uint64]*device.Stream
	used    map[*device.Stream]string // the last call whose kernel was launched there
	ends    []end                     // of work on streams that may have been destroyed
}

// An end is the position in a stream behind the kernels of a call.
type end struct {
	event *device.Event
	act   string // the call
}

func newStreams(d *device.Device) *streams {
	return &streams{dev: d, known: map[uint64]*device.Stream{}, used: map[*device.Stream]string{}}
}

// SetStream makes later calls queue their work on a stream of the op's GPU: cudaStream_t,
// hipStream_t, 0 for the default stream. The stream must exist until Leave or Close, which use it:
// drivers crash on a stream that was destroyed.
func (t *streams) SetStream(id uint64) {
	s := t.known[id]
	if s == nil {
		if len(t.known) >= mostStreams {
			t.forgetStreams()
		}
		s = t.dev.ExternalStream(id)
		t.known[id] = s
	}
	t.current = s
}

// launch queues the kernel of a call.
func (t *streams) launch(act string, f *device.Function, grid device.Grid, args *device.Args) error {
	t.used[t.current] = act
	if err := f.Launch(t.current, grid, args); err != nil {
		return fmt.Errorf("%s: %w", act, err)
	}
	return nil
}

// forgetStreams makes the op independent of the streams: their owners may destroy them.
func (t *streams) forgetStreams() {
	t.mark()
	clear(t.known)
	clear(t.used)
}

// mark records the end of the op's work on each stream. A stream that refuses has been destroyed,
// and its work has ended.
func (t *streams) mark() {
	if len(t.ends) >= mostEnds {
		t.dropEnds()
	}
	for s, act := range t.used {
		e, err := t.dev.NewEvent()
		if err != nil {
			return
		}
		if e.Record(s) != nil {
			_ = e.Close()
			continue
		}
		t.ends = append(t.ends, end{e, act})
	}
}

// dropEnds drops the ends that the GPU has reached, and the oldest of the others until there is
// room.
func (t *streams) dropEnds() {
	left := t.ends[:0]
	for i, e := range t.ends {
		if done, err := e.event.Done(); !done && err == nil && len(t.ends)-i < mostEnds/2 {
			left = append(left, e)
			continue
		}
		_ = e.event.Close()
	}
	t.ends = left
}

// settle waits until the GPU has reached all ends that mark recorded. Kernels end by themselves,
// because their waits are bounded. Those that do not end within patience are aborted. The error
// names a kernel that does not end even then, and wraps device.ErrTimeout: the memory that it uses
// must not be freed.
func (t *streams) settle(n *notice, patience time.Duration, rank int) error {
	for _, e := range t.ends {
		if err := e.settle(n, patience); err != nil {
			return fmt.Errorf("the kernel of %s of rank %d did not end after it was aborted: %w", e.act, rank, err)
		}
	}
	for _, e := range t.ends {
		_ = e.event.Close()
	}
	t.ends = t.ends[:0]
	return nil
}

// settle waits for one end. It returns timeouts only: after any other error the device runs
// nothing.
func (e *end) settle(n *notice, patience time.Duration) error {
	if !n.aborting() {
		if err := waitAtMost(patience, e.event.Wait); !errors.Is(err, device.ErrTimeout) {
			return nil
		}
		n.abort()
	}
	if err := waitAtMost(afterAbort, e.event.Wait); errors.Is(err, device.ErrTimeout) {
		return err
	}
	return nil
}

func waitAtMost(limit time.Duration, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return wait(ctx)
}
