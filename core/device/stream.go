// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"fmt"

	"mori/native/gpu"
)

// A Priority is a stream's priority.
type Priority int

// The priorities: the driver's default, and the most urgent.
const (
	Normal Priority = iota
	Urgent
)

// A Stream executes its work in order, concurrently with other streams.
type Stream struct {
	handle
	gpu gpu.Stream
}

// NewStream creates a stream that does not synchronise with the default stream.
func (d *Device) NewStream(p Priority) (*Stream, error) {
	least, greatest, err := d.gpu.Priorities()
	if err != nil {
		return nil, fmt.Errorf("query the stream priorities of %s: %w", d, err)
	}
	if p == Urgent {
		least = greatest
	}
	made, err := d.gpu.NewStream(least)
	if err != nil {
		return nil, fmt.Errorf("make a stream on %s: %w", d, err)
	}
	s := &Stream{gpu: made}
	s.init(d, "a stream", made.Destroy)
	return s, nil
}

// ExternalStream is a stream that mori has not made: cudaStream_t, hipStream_t, 0 for the default
// stream. It must outlive its use.
func (d *Device) ExternalStream(id uint64) *Stream {
	return &Stream{handle: handle{dev: d, what: "an external stream", free: func() error { return nil }}, gpu: gpu.Stream{Device: d.gpu, Handle: id}}
}

// Handle returns the vendor's handle.
func (s *Stream) Handle() uint64 { return s.gpu.Handle }

// Device returns the device of the stream.
func (s *Stream) Device() *Device { return s.dev }

// Copy copies n bytes between any two addresses: of devices, mapped from other processes, or of the
// host. With host memory that is not pinned the call waits for the copy. The ranges must not
// overlap.
func (s *Stream) Copy(dst, src, n uint64) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.gpu.Copy(dst, src, n); err != nil {
		return fmt.Errorf("copy %d bytes from %#x to %#x: %w", n, src, dst, err)
	}
	return nil
}

// CopyPeer copies between two devices, through the host if they cannot access each other.
func (s *Stream) CopyPeer(dst uint64, to *Device, src uint64, from *Device, n uint64) error {
	if err := s.check(); err != nil {
		return err
	}
	if to.gpu.Driver != s.dev.gpu.Driver || from.gpu.Driver != s.dev.gpu.Driver {
		return fmt.Errorf("copy %d bytes from %s to %s: %w", n, from, to, ErrNoPeer)
	}
	if err := s.gpu.CopyPeer(dst, to.Ordinal, src, from.Ordinal, n); err != nil {
		return fmt.Errorf("copy %d bytes from %#x on %s to %#x on %s: %w", n, src, from, dst, to, err)
	}
	return nil
}

// Set fills n bytes with value.
func (s *Stream) Set(dst uint64, value byte, n uint64) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.gpu.Set(dst, value, n); err != nil {
		return fmt.Errorf("fill %d bytes at %#x: %w", n, dst, err)
	}
	return nil
}

// After makes later work of s wait for e, which may be of another device.
func (s *Stream) After(e *Event) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := e.check(); err != nil {
		return err
	}
	if err := s.gpu.Wait(e.gpu); err != nil {
		return fmt.Errorf("make a stream wait for an event: %w", err)
	}
	return nil
}

// Done reports whether all work of s has completed. An error may come from that work.
func (s *Stream) Done() (bool, error) {
	if err := s.check(); err != nil {
		return false, err
	}
	return s.gpu.Done()
}

// Wait waits until Done, or until ctx ends: the error then wraps ErrTimeout and the context's, and
// s continues.
func (s *Stream) Wait(ctx context.Context) error { return wait(ctx, s, &s.handle) }
