// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"mori/core/internal/sys/thread"
)

// A CopySegment is memory to copy. Addresses are the device's: of its own memory, of a peer that it
// can access (EnablePeer, OpenIPC), or a DeviceAddr of pinned host memory.
type CopySegment struct{ Dst, Src, Bytes uint64 }

// CopyBlocks is memory to copy in blocks of one size: block i is Bytes bytes, from Src +
// SrcOffsets[i] to Dst + DstOffsets[i]. Both offset lists have the same length. The device reads
// half as many bytes as for segments, and the host need not convert the list.
type CopyBlocks struct {
	Dst, Src               uint64 // as in a CopySegment
	Bytes                  uint64
	DstOffsets, SrcOffsets []uint64
}

// block returns block i as a segment.
func (b *CopyBlocks) block(i int) CopySegment {
	return CopySegment{b.Dst + b.DstOffsets[i], b.Src + b.SrcOffsets[i], b.Bytes}
}

// CopierOptions configure a Copier. The zero value has good defaults.
type CopierOptions struct {
	// Depth is the limit of pending copies; 0 is 8. Each slot that was ever used keeps a list in
	// pinned memory until Close.
	Depth int
	// Blocks is the limit of thread blocks of a launch; 0 is 32, and 64 for segments shorter than 4
	// KiB.
	Blocks int
	// EngineFrom is the average segment size from which the copy engines copy; 0 is 8 MiB for lists
	// and 1 MiB for one segment, 1 is all.
	EngineFrom uint64
	// Priority is the priority of its streams.
	Priority Priority
	// Streams is the number of streams that long copies take turns on; 0 is 2: while one copy ends,
	// the next is in flight (8192 x 4 KiB between H200s, 32 blocks: 315 GB/s with one, 346 with
	// two, 342 with four). Short copies have four more streams.
	Streams int
	// InOrder makes the device execute one copy after the other, also short ones, in the order of
	// Start. Then the device never uses more blocks than Blocks.
	InOrder bool
}

const (
	defaultDepth = 8
	// Each call of the copy engines occupies the link for 2 µs. Between H200s they moved 1 MiB
	// segments at 205 GB/s, 4 MiB at 316, 16 MiB at 364, and one of 64 MiB at 378. The kernel
	// reaches 368 at any length.
	defaultEngineFrom    = 8 << 20
	defaultEngineFromOne = 1 << 20

	// A copy up to this size is short: it does not wait behind long ones, and ends before it could
	// delay them.
	shortCopy    = 256 << 10
	shortStreams = 4
	usualStreams = 2

	// closeGrace is how long Close waits for pending copies.
	closeGrace = 10 * time.Second
)

// A Copier copies lists of segments between memories that its device can access. One kernel launch
// copies many small segments, the copy engines copy long ones. Pending lists overlap.
//
//	c, err := d.NewCopier(device.CopierOptions{})
//	copied, err := c.Start(segments)         // does not wait; the list is the caller's again
//	done, err := copied.Done()               // over and over; or copied.Wait(ctx)
//	err = c.Close()                          // waits for what is under way, 10 s at most
//
// Safe for concurrent use. Once the Copier has seen lists as long and as many pending copies, a
// copy allocates nothing. If the kernel is not available (NoKernel says why), the copy engines copy
// everything.
type Copier struct {
	dev    *Device
	opts   CopierOptions
	kernel *copyKernel // nil without a kernel
	why    error

	engineFromOne uint64 // the list of a single segment

	mu     sync.Mutex
	free   []*copySlot
	slots  []*copySlot
	lost   int // slots that are not reused: their stream failed, so their copies may still run
	closed bool

	long, short lines
}

// lines are streams that copies take turns on.
type lines struct {
	of   []*Stream
	next int
}

// NewCopier creates a Copier on d, with only the kernel loaded on the device.
func (d *Device) NewCopier(o CopierOptions) (*Copier, error) {
	if o.Depth < 0 || o.Blocks < 0 || o.Streams < 0 {
		return nil, fmt.Errorf("make a copier of depth %d, %d blocks and %d streams on %s: %w", o.Depth, o.Blocks, o.Streams, d, ErrInvalid)
	}
	if o.Depth == 0 {
		o.Depth = defaultDepth
	}
	c := &Copier{dev: d, opts: o, engineFromOne: o.EngineFrom}
	if o.EngineFrom == 0 {
		c.opts.EngineFrom, c.engineFromOne = defaultEngineFrom, defaultEngineFromOne
	}
	c.long.of = make([]*Stream, usualStreams)
	if o.Streams > 0 {
		c.long.of = make([]*Stream, o.Streams)
	}
	c.short.of = make([]*Stream, shortStreams)
	if o.InOrder {
		c.long.of = c.long.of[:1]
	}
	if o.EngineFrom != 1 {
		c.kernel, c.why = useCopyKernel(d)
	}
	return c, nil
}

// Device returns the device that copies.
func (c *Copier) Device() *Device { return c.dev }

// NoKernel returns why the kernel is not used; nil if it is, or if the options exclude it.
func (c *Copier) NoKernel() error { return c.why }

// Start starts a copy after all events in after. Destinations must not overlap each other or any
// source. It returns ErrBusy if Depth copies are pending; Done of one of them makes room. After an
// error no byte is copied.
func (c *Copier) Start(segs []CopySegment, after ...*Event) (Copy, error) {
	k, err := c.start(work{segs: segs}, after)
	if err != nil {
		return k, fmt.Errorf("copy %d segments on %s: %w", len(segs), c.dev, err)
	}
	return k, nil
}

// StartBlocks is Start for blocks of one size. The offsets may be reused when it returns.
func (c *Copier) StartBlocks(b CopyBlocks, after ...*Event) (Copy, error) {
	var k Copy
	err := ErrInvalid
	if len(b.DstOffsets) == len(b.SrcOffsets) {
		k, err = c.start(work{blocks: b}, after)
	}
	if err != nil {
		return k, fmt.Errorf("copy %d blocks of %d bytes to %d places on %s: %w", len(b.SrcOffsets), b.Bytes, len(b.DstOffsets), c.dev, err)
	}
	return k, nil
}

func (c *Copier) start(w work, after []*Event) (Copy, error) {
	s, err := c.take()
	if err != nil {
		return Copy{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	s.under, s.failed, s.polls, s.silent = true, nil, 0, time.Time{}
	if err := s.start(w, after); err != nil {
		s.under = false
		c.give(s)
		return Copy{}, err
	}
	return Copy{s, s.turn}, nil
}

// take returns an unused slot.
func (c *Copier) take() (*copySlot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("the copier: %w", ErrClosed)
	}
	if n := len(c.free); n > 0 {
		s := c.free[n-1]
		c.free = c.free[:n-1]
		return s, nil
	}
	if c.lost >= c.opts.Depth {
		return nil, fmt.Errorf("%d copies failed on the device: %w", c.lost, ErrLost)
	}
	if len(c.slots)-c.lost >= c.opts.Depth {
		return nil, ErrBusy
	}
	s, err := c.newSlot()
	if err != nil {
		return nil, err
	}
	c.slots = append(c.slots, s)
	return s, nil
}

// line gives the stream that a copy of so many bytes goes to.
func (c *Copier) line(total uint64) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.long
	if total <= shortCopy && !c.opts.InOrder {
		l = &c.short
	}
	s := &l.of[l.next%len(l.of)]
	if *s == nil {
		made, err := c.dev.NewStream(c.opts.Priority)
		if err != nil {
			return nil, err
		}
		*s = made
	}
	l.next++
	return *s, nil
}

// give frees a slot, unless its stream is lost.
func (c *Copier) give(s *copySlot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.lost {
		c.lost++
		return
	}
	c.free = append(c.free, s)
}

// Close waits for pending copies and frees everything. If they do not end, the error wraps
// ErrTimeout, and their memory must be kept. Closing again returns nil. Pending copies then return
// ErrClosed.
func (c *Copier) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var errs []error
	streams := slices.DeleteFunc(slices.Concat(c.long.of, c.short.of), func(s *Stream) bool { return s == nil })
	for _, s := range streams {
		errs = append(errs, s.Wait(ctx))
	}
	if err := errors.Join(errs...); errors.Is(err, ErrTimeout) {
		return fmt.Errorf("close the copier on %s: %w", c.dev, err)
	}
	for _, s := range c.slots {
		errs = append(errs, s.close())
	}
	for _, s := range streams {
		errs = append(errs, s.Close())
	}
	if c.kernel != nil {
		errs = append(errs, c.kernel.drop())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the copier on %s: %w", c.dev, err)
	}
	return nil
}

// A Copy is a started copy. It must not be used after Done has returned true.
type Copy struct {
	slot *copySlot
	turn uint64
}

// Done reports whether all bytes have arrived, visible to the host and all devices. It is also true
// on an error; the target is then undefined. It costs a load of a word in host memory for the
// kernel, and a stream query for the copy engines.
func (k Copy) Done() (bool, error) {
	s := k.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != k.turn || !s.under || s.closed {
		return true, fmt.Errorf("a copy on %s that had completed: %w", s.copier.dev, ErrClosed)
	}
	done, err := s.over()
	if !done && err == nil {
		return false, nil
	}
	s.under = false
	s.copier.give(s)
	if err != nil {
		return true, fmt.Errorf("copy on %s: %w", s.copier.dev, err)
	}
	return true, nil
}

// Wait waits until Done, or until ctx ends: the error then wraps ErrTimeout and the context's, and
// the copy continues.
func (k Copy) Wait(ctx context.Context) error {
	start := time.Now()
	for pause := firstPause; ; {
		done, err := k.Done()
		if done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("a copy on %s after %v: %w (%w)", k.slot.copier.dev, time.Since(start).Round(time.Microsecond), ErrTimeout, context.Cause(ctx))
		}
		if time.Since(start) < spinFor {
			runtime.Gosched()
			continue
		}
		thread.Nap(pause)
		pause = min(2*pause, lastPause)
	}
}
