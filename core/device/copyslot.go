// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"mori/core/internal/sys"
	"mori/native/abi"
)

const (
	leastSegments = 256 // capacity of a list
	wordBytes     = 64  // a word that the host polls has its own cache line
	patience      = time.Second
	askEvery      = 1 << 10 // polls of the word per driver query; only the driver knows that a kernel failed
)

// A copySlot holds the resources of one pending copy.
type copySlot struct {
	copier *Copier
	event  *Event // the copy engines' part has ended

	mu     sync.Mutex
	stream *Stream // the copy that uses the slot
	turn   uint64  // number of the copy; also the value that the kernel writes to word
	under  bool    // a copy is under way
	closed bool
	lost   bool  // the stream returned an error
	launch bool  // the copy uses the kernel
	marked bool  // the event was recorded after it
	failed error // the copy's final error: a part could not be started
	polls  uint
	silent time.Time   // since when the driver has not known the result
	list   *HostMemory // segments, then the word
	word   uint64
	count  *Memory // the kernel's block counter
	args   Args
}

// newSlot creates a slot. c's lock is held.
func (c *Copier) newSlot() (*copySlot, error) {
	event, err := c.dev.NewEvent()
	if err != nil {
		return nil, err
	}
	return &copySlot{copier: c, event: event}, nil
}

// work is what one copy moves: segments or blocks.
type work struct {
	segs   []CopySegment
	blocks CopyBlocks
}

// extent returns the number of non-empty pieces of w, the first of them, and their total size.
func (w *work) extent() (count int, first CopySegment, total uint64) {
	if n := len(w.blocks.DstOffsets); n > 0 && w.blocks.Bytes > 0 {
		return n, w.blocks.block(0), uint64(n) * w.blocks.Bytes
	}
	for _, s := range w.segs {
		if s.Bytes > 0 {
			if count == 0 {
				first = s
			}
			count++
			total += s.Bytes
		}
	}
	return count, first, total
}

// start starts a copy. After an error no byte is copied. The lock is held.
func (s *copySlot) start(w work, after []*Event) error {
	count, first, total := w.extent()
	var err error
	if s.stream, err = s.copier.line(total); err != nil {
		return err
	}
	for _, e := range after {
		if err := s.stream.After(e); err != nil {
			return err
		}
	}
	s.marked = false
	engineFrom := s.copier.opts.EngineFrom
	if count == 1 {
		engineFrom = s.copier.engineFromOne
	}
	s.launch = s.copier.kernel != nil && count > 0 && total/uint64(count) < engineFrom
	switch {
	case s.launch && count == 1:
		return s.startOne(first)
	case s.launch && len(w.segs) == 0:
		return s.startBlocks(&w.blocks, total)
	case s.launch:
		return s.startKernel(w.segs, count, total)
	}
	err = s.startEngines(&w)
	s.marked = err == nil && s.event.Record(s.stream) == nil // otherwise the whole stream is queried
	return err
}

func (s *copySlot) startEngines(w *work) error {
	begun := false
	for i := range max(len(w.segs), len(w.blocks.DstOffsets)) {
		var g CopySegment
		if len(w.segs) > 0 {
			g = w.segs[i]
		} else {
			g = w.blocks.block(i)
		}
		if g.Bytes == 0 {
			continue
		}
		if err := s.stream.Copy(g.Dst, g.Src, g.Bytes); err != nil {
			if !begun {
				return err
			}
			s.failed = err // reported once earlier copies have ended
			return nil
		}
		begun = true
	}
	return nil
}

func (s *copySlot) startKernel(segs []CopySegment, count int, total uint64) error {
	if err := s.room(count); err != nil {
		return err
	}
	list := sys.Slice[abi.IOSegment](s.list.Addr(), count)
	n, before := 0, uint64(0)
	for i := range segs {
		g := &segs[i]
		if g.Bytes == 0 {
			continue
		}
		list[n] = abi.IOSegment{Destination: g.Dst, Source: g.Src, Bytes: g.Bytes, Before: before}
		n++
		before += g.Bytes
	}
	return s.fire(abi.IOCopyBlocksArgs{List: s.list.DeviceAddr()}, count, total)
}

// startBlocks launches the kernel on two rows of offsets: targets and sources.
func (s *copySlot) startBlocks(b *CopyBlocks, total uint64) error {
	n := len(b.DstOffsets)
	if err := s.room(n); err != nil {
		return err
	}
	words := sys.Slice[uint64](s.list.Addr(), 2*n)
	copy(words, b.DstOffsets)
	copy(words[n:], b.SrcOffsets)
	args := abi.IOCopyBlocksArgs{List: s.list.DeviceAddr(), BlockBytes: b.Bytes, Destination: b.Dst, Source: b.Src}
	return s.fire(args, n, total)
}

// startOne launches a copy of one segment, which is passed as an argument: the kernel reads no list
// over PCIe.
func (s *copySlot) startOne(seg CopySegment) error {
	if err := s.room(1); err != nil {
		return err
	}
	one := abi.IOSegment{Destination: seg.Dst, Source: seg.Src, Bytes: seg.Bytes}
	return s.fire(abi.IOCopyBlocksArgs{One: one}, 1, seg.Bytes)
}

// fire launches the kernel. The caller has said where the segments are.
func (s *copySlot) fire(a abi.IOCopyBlocksArgs, count int, total uint64) error {
	sys.Store64(s.word, 0)
	a.Count, a.Total, a.Arrivals = uint64(count), total, s.count.Addr()
	a.Completion, a.CompletionValue = s.word-s.list.Addr()+s.list.DeviceAddr(), s.turn
	args := s.args.Reset().Struct(abi.Bytes(&a), 8)
	return s.copier.kernel.function.Launch(s.stream, s.copier.kernel.grid(count, total, s.copier.opts.Blocks), args)
}

// room makes room for a list of n segments and the word after it.
func (s *copySlot) room(n int) error {
	if s.count == nil {
		count, err := s.copier.dev.Alloc(wordBytes)
		if err != nil {
			return err
		}
		if err := s.stream.Set(count.Addr(), 0, wordBytes); err != nil {
			return errors.Join(err, count.Close())
		}
		s.count = count
	}
	if s.list != nil && s.list.Bytes() >= uint64(n)*abi.IOSegmentBytes+wordBytes {
		return nil
	}
	size := uint64(1) << bits.Len(uint(max(n, leastSegments)-1)) * abi.IOSegmentBytes
	list, err := s.copier.dev.AllocHost(size + wordBytes)
	if err != nil {
		return err
	}
	old := s.list
	s.list, s.word = list, list.Addr()+size
	if old != nil {
		return old.Close()
	}
	return nil
}

// over reports whether the copy has ended. The lock is held.
func (s *copySlot) over() (bool, error) {
	if !s.launch {
		done, err := s.ask()
		if !done || err != nil {
			return false, err
		}
		return true, s.failed
	}
	if sys.Load64(s.word) == s.turn {
		return true, nil
	}
	if s.polls++; s.polls%askEvery != 0 {
		return false, nil
	}
	done, err := s.ask()
	if done && err == nil && sys.Load64(s.word) != s.turn {
		err = fmt.Errorf("the kernel ended without its completion word: %w", ErrLost)
		s.lost = true
	}
	return done, err
}

// ask queries the driver. While the driver does not know, the copy may continue. Only a lost
// device, or a driver that does not know for long, ends it.
func (s *copySlot) ask() (bool, error) {
	var what doer = s.stream
	if s.marked {
		what = s.event
	}
	done, err := what.Done()
	switch {
	case err == nil:
		s.silent = time.Time{}
		return done, nil
	case errors.Is(err, ErrLost):
	case s.silent.IsZero():
		s.silent = time.Now()
		return false, nil
	case time.Since(s.silent) < patience:
		return false, nil
	}
	s.lost = true
	return false, err
}

// close frees everything. The stream is idle.
func (s *copySlot) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	errs := []error{s.event.Close()}
	if s.list != nil {
		errs = append(errs, s.list.Close())
	}
	if s.count != nil {
		errs = append(errs, s.count.Close())
	}
	return errors.Join(errs...)
}
