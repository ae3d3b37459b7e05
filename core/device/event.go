// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"mori/core/internal/sys/thread"
	"mori/native/gpu"
)

// An Event completes when a stream has completed the work before it.
type Event struct {
	handle
	gpu    gpu.Event
	timing bool
}

// NewEvent creates an event that callers can wait for.
func (d *Device) NewEvent() (*Event, error) { return newEvent(d, false) }

// NewTimer creates an event that records its time, which costs more.
func (d *Device) NewTimer() (*Event, error) { return newEvent(d, true) }

func newEvent(d *Device, timing bool) (*Event, error) {
	made, err := d.gpu.NewEvent(timing)
	if err != nil {
		return nil, fmt.Errorf("make an event on %s: %w", d, err)
	}
	e := &Event{gpu: made, timing: timing}
	e.init(d, "an event", made.Destroy)
	return e, nil
}

// ExternalEvent is an event that mori has not made: cudaEvent_t, hipEvent_t. It must outlive its
// use.
func (d *Device) ExternalEvent(id uint64) *Event {
	return &Event{handle: handle{dev: d, what: "an external event", free: func() error { return nil }}, gpu: gpu.Event{Device: d.gpu, Handle: id}}
}

// Handle returns the vendor's handle.
func (e *Event) Handle() uint64 { return e.gpu.Handle }

// Device returns the device of the stream.
func (e *Event) Device() *Device { return e.dev }

// Record makes e complete when s, of the same device, has completed its present work.
func (e *Event) Record(s *Stream) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	if err := e.gpu.Record(s.gpu); err != nil {
		return fmt.Errorf("record an event: %w", err)
	}
	return nil
}

// Done reports whether e has completed since it was last recorded. An event that was never recorded
// is complete.
func (e *Event) Done() (bool, error) {
	if err := e.check(); err != nil {
		return false, err
	}
	return e.gpu.Done()
}

// Wait waits until Done, or until ctx ends: the error then wraps ErrTimeout and the context's.
func (e *Event) Wait(ctx context.Context) error { return wait(ctx, e, &e.handle) }

// Since returns the time between two timers, both of which have completed.
func (e *Event) Since(earlier *Event) (time.Duration, error) {
	if !e.timing || !earlier.timing {
		return 0, fmt.Errorf("measure time between events that are not timers: %w", ErrInvalid)
	}
	ms, err := e.gpu.Since(earlier.gpu)
	if err != nil {
		return 0, fmt.Errorf("measure time between events: %w", err)
	}
	return time.Duration(float64(ms) * float64(time.Millisecond)), nil
}

// Waiting polls, because a driver's own wait has no time limit. It polls without pause first, for
// short work, and then with growing pauses, so that a long wait does not use a core.
const (
	spinFor    = 50 * time.Microsecond
	firstPause = 5 * time.Microsecond
	lastPause  = 200 * time.Microsecond
)

type doer interface{ Done() (bool, error) }

func wait(ctx context.Context, what doer, h *handle) error {
	start := time.Now()
	for pause := firstPause; ; {
		done, err := what.Done()
		if done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s on %s after %v: %w (%w)", h.what, h.dev, time.Since(start).Round(time.Microsecond), ErrTimeout, context.Cause(ctx))
		}
		if time.Since(start) < spinFor {
			runtime.Gosched()
			continue
		}
		thread.Nap(pause)
		pause = min(2*pause, lastPause)
	}
}
