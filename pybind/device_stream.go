// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/device"
	"mori/pybind/handle"
)

var (
	streams = handle.Table[*device.Stream]{What: "stream"}
	events  = handle.Table[*device.Event]{What: "event"}
)

// StreamNew creates a stream on a GPU and returns its handle.
func StreamNew(number int, urgent bool) (id uint64, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return 0, err
	}
	priority := device.Normal
	if urgent {
		priority = device.Urgent
	}
	s, err := d.NewStream(priority)
	if err != nil {
		return 0, err
	}
	return streams.Add(s), nil
}

// StreamExternal wraps a stream that mori did not create, 0 for the default stream.
func StreamExternal(number int, handle uint64) (id uint64, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return 0, err
	}
	return streams.Add(d.ExternalStream(handle)), nil
}

// StreamHandle returns the vendor's handle of a stream.
func StreamHandle(stream uint64) (handle uint64, err error) {
	defer guard(&err)
	s, err := streams.Get(stream)
	if err != nil {
		return 0, err
	}
	return s.Handle(), nil
}

// StreamCopy queues a copy on a stream.
func StreamCopy(stream uint64, dst uint64, src uint64, nbytes uint64) (n int, err error) {
	defer guard(&err)
	s, err := streams.Get(stream)
	if err != nil {
		return 0, err
	}
	return 0, s.Copy(dst, src, nbytes)
}

// StreamSet queues a memory fill on a stream.
func StreamSet(stream uint64, dst uint64, value int, nbytes uint64) (n int, err error) {
	defer guard(&err)
	s, err := streams.Get(stream)
	if err != nil {
		return 0, err
	}
	if value < 0 || value > 255 {
		return 0, coded("E_ARG", fmt.Errorf("fill with %d: a byte is 0 to 255", value))
	}
	return 0, s.Set(dst, byte(value), nbytes)
}

// StreamAfter makes a stream wait for an event.
func StreamAfter(stream uint64, event uint64) (n int, err error) {
	defer guard(&err)
	s, err := streams.Get(stream)
	if err != nil {
		return 0, err
	}
	e, err := events.Get(event)
	if err != nil {
		return 0, err
	}
	return 0, s.After(e)
}

// StreamWait waits for a stream and reports whether all its work is done.
func StreamWait(stream uint64, timeoutMS int) (done bool, err error) {
	defer guard(&err)
	s, err := streams.Get(stream)
	if err != nil {
		return false, err
	}
	return waited(timeoutMS, s.Wait)
}

// StreamClose closes a stream; a wrapped one stays open for its owner. It ignores a handle that is
// already closed.
func StreamClose(stream uint64) (n int, err error) {
	defer guard(&err)
	if s, ok := streams.Remove(stream); ok {
		return 1, s.Close()
	}
	return 0, nil
}

// EventNew creates an event on a GPU and returns its handle.
func EventNew(number int, timing bool) (id uint64, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return 0, err
	}
	newEvent := d.NewEvent
	if timing {
		newEvent = d.NewTimer
	}
	e, err := newEvent()
	if err != nil {
		return 0, err
	}
	return events.Add(e), nil
}

// EventExternal wraps an event that mori did not create.
func EventExternal(number int, handle uint64) (id uint64, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return 0, err
	}
	return events.Add(d.ExternalEvent(handle)), nil
}

// EventHandle returns the vendor's handle of an event.
func EventHandle(event uint64) (handle uint64, err error) {
	defer guard(&err)
	e, err := events.Get(event)
	if err != nil {
		return 0, err
	}
	return e.Handle(), nil
}

// EventRecord records an event on a stream. The event happens when the work queued so far is done.
func EventRecord(event uint64, stream uint64) (n int, err error) {
	defer guard(&err)
	e, err := events.Get(event)
	if err != nil {
		return 0, err
	}
	s, err := streams.Get(stream)
	if err != nil {
		return 0, err
	}
	return 0, e.Record(s)
}

// EventWait waits for an event and reports whether it has happened.
func EventWait(event uint64, timeoutMS int) (done bool, err error) {
	defer guard(&err)
	e, err := events.Get(event)
	if err != nil {
		return false, err
	}
	return waited(timeoutMS, e.Wait)
}

// EventElapsed returns the time between two events that have happened, in milliseconds.
func EventElapsed(event uint64, earlier uint64) (ms float64, err error) {
	defer guard(&err)
	e, err := events.Get(event)
	if err != nil {
		return 0, err
	}
	before, err := events.Get(earlier)
	if err != nil {
		return 0, err
	}
	passed, err := e.Since(before)
	return float64(passed) / float64(time.Millisecond), err
}

// EventClose closes an event; a wrapped one stays open for its owner. It ignores a handle that is
// already closed.
func EventClose(event uint64) (n int, err error) {
	defer guard(&err)
	if e, ok := events.Remove(event); ok {
		return 1, e.Close()
	}
	return 0, nil
}

// waited runs a wait with a timeout. It returns false without an error if the timeout ends first.
func waited(timeoutMS int, wait func(context.Context) error) (done bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(timeoutMS)*time.Millisecond)
	defer cancel()
	if err := wait(ctx); !errors.Is(err, device.ErrTimeout) {
		return err == nil, err
	}
	return false, nil
}
