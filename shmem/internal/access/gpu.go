// SPDX-License-Identifier: MIT

package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/peers"
)

// A GPU moves the bytes of heaps on GPUs: copies by the driver, atomics by a kernel of one thread.
// It is of one device, this PE's, which reaches what is mapped of others'.
//
// What blocks takes a lane, and is done when the call returns, so blocking calls are ordered. What
// does not goes to one stream, in order. No stream of the user's is waited for: what a kernel
// writes is there for calls here after the user has waited for the kernel.
type GPU struct {
	Device  *device.Device
	timeout time.Duration // of a wait, 0: none
	ask     func() error  // whether to go on waiting; nil: always

	// Known reports whether n bytes at addr exist as long as this GPU is in use, so that Check
	// need not ask the driver. Nil knows no memory.
	Known func(addr, n uint64) bool

	mu    sync.Mutex
	lanes []*lane // free ones
	all   []*lane // all that there are
	later *device.Stream
	due   uint64 // bytes that later was given since settle

	load   sync.Mutex
	module *device.Module // of atomics, once somebody asked
	amo    *device.Function
}

// NewGPU returns the access to memory with device d. A wait ends after timeout, where 0 is none,
// and when ask returns an error; a nil ask always goes on.
func NewGPU(d *device.Device, timeout time.Duration, ask func() error) *GPU {
	return &GPU{Device: d, timeout: timeout, ask: ask}
}

// Prepare has n lanes and the kernel of atomics there before they are needed: to make them may wait
// for what runs on the device.
func (g *GPU) Prepare(n int) error {
	lanes := make([]*lane, 0, n)
	for range n {
		l, err := g.take()
		if err != nil {
			return err
		}
		lanes = append(lanes, l)
	}
	g.mu.Lock()
	g.lanes = append(g.lanes, lanes...)
	g.mu.Unlock()
	_, err := g.atomics()
	return err
}

// Wait waits for a stream, as long as waits of a World may last, and asks every now and then
// whether to go on.
func (g *GPU) Wait(s *device.Stream) error {
	for begin := time.Now(); ; {
		slice := peers.AskEvery
		if g.timeout > 0 {
			slice = min(slice, max(g.timeout-time.Since(begin), time.Millisecond))
		}
		ctx, cancel := context.WithTimeout(context.Background(), slice)
		err := s.Wait(ctx)
		cancel()
		if !errors.Is(err, device.ErrTimeout) {
			return err
		}
		if g.timeout > 0 && time.Since(begin) >= g.timeout {
			return fmt.Errorf("%w: %w", err, peers.ErrTimeout)
		}
		if g.ask != nil {
			if err := g.ask(); err != nil {
				return err
			}
		}
	}
}

func (g *GPU) Move(dst, src, n uint64) error {
	if err := errors.Join(g.Check(dst, n), g.Check(src, n)); err != nil {
		return err
	}
	return g.Copy(dst, src, n)
}

// Check refuses what is neither memory of a device nor of this process: a driver would end the
// process over it. A question to a driver takes as long as a put of few bytes may, so memory of
// heaps is not asked about, and one allocation is asked about once.
func (g *GPU) Check(addr, n uint64) error {
	if n == 0 || g.Known != nil && g.Known(addr, n) {
		return nil
	}
	p, err := device.Lookup(addr)
	if err == nil && p.Kind != device.Unknown && addr+n-1-p.Base >= p.Bytes { // it ends in another one, or the driver does not know
		p, err = device.Lookup(addr + n - 1)
	}
	if err != nil {
		return err
	}
	if p.Kind == device.Unknown && !memory.Mapped(addr, n) {
		return fmt.Errorf("the local memory is not mapped: %d bytes at %#x: %w", n, addr, peers.ErrInvalid)
	}
	return nil
}

func (g *GPU) Copy(dst, src, n uint64) error {
	if n == 0 || dst == src {
		return nil
	}
	if dst < src+n && src < dst+n {
		return g.copyOverlap(dst, src, n)
	}
	return g.use(n, func(l *lane) error { return l.stream.Copy(dst, src, n) }, nil)
}

// copyOverlap goes through memory of its own, as a driver's copies may go in any order.
func (g *GPU) copyOverlap(dst, src, n uint64) error {
	between, err := g.Device.Alloc(n)
	if err != nil {
		return NoMemory(err)
	}
	err = g.use(2*n, func(l *lane) error {
		if err := l.stream.Copy(between.Addr(), src, n); err != nil {
			return err
		}
		return l.stream.Copy(dst, between.Addr(), n)
	}, nil)
	return errors.Join(err, between.Close())
}

func (g *GPU) MoveLater(dst, src, n uint64) error {
	if err := errors.Join(g.Check(dst, n), g.Check(src, n)); err != nil {
		return err
	}
	if n == 0 || dst == src {
		return nil
	}
	if dst < src+n && src < dst+n {
		return g.copyOverlap(dst, src, n)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.later == nil {
		s, err := g.Device.NewStream(device.Normal)
		if err != nil {
			return err
		}
		g.later = s
	}
	g.due += n
	return g.later.Copy(dst, src, n)
}

func (g *GPU) Settle() error {
	g.mu.Lock()
	due, s := g.due, g.later
	g.due = 0
	g.mu.Unlock()
	if due == 0 {
		return nil
	}
	return g.await(s, due)
}

// Follow lets a stream wait for what was moved later.
func (g *GPU) Follow(s *device.Stream) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.due == 0 {
		return nil
	}
	e, err := g.Device.NewEvent()
	if err != nil {
		return err
	}
	if err = e.Record(g.later); err == nil {
		err = s.After(e)
	}
	return errors.Join(err, e.Close()) // the driver keeps an event that is waited for
}

func (g *GPU) MoveStrided(dst, dstep, src, sstep, size, count uint64) error {
	if count == 0 || size == 0 {
		return nil
	}
	err := errors.Join(g.Check(dst, dstep*(count-1)+size), g.Check(src, sstep*(count-1)+size))
	if err != nil {
		return err
	}
	if dstep == size && sstep == size {
		return g.Copy(dst, src, size*count)
	}
	return g.use(size*count, func(l *lane) error {
		for i := range count {
			if err := l.stream.Copy(dst+i*dstep, src+i*sstep, size); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

func (g *GPU) Load(at, n uint64, buf []byte) (uint64, []byte, error) {
	if uint64(len(buf)) < n+16 {
		buf = make([]byte, n+16)
	}
	to := arena.RoundUp(memory.AddrOf(buf), 8) // whole words are loaded from there
	return to, buf, g.Copy(to, at, n)
}

func (g *GPU) Clear(at, n uint64) error {
	return g.use(n, func(l *lane) error { return l.stream.Set(at, 0, n) }, nil)
}

// Atomic loads and stores by copies, which are whole for a word, and lets a kernel do all else.
func (g *GPU) Atomic(op AtomicOp, size int, at, value, compare uint64) (old uint64, err error) {
	result := func(l *lane) { old = LoadWord(l.words.Addr(), size) }
	switch op {
	case AtomicFetch:
		err = g.use(uint64(size), func(l *lane) error { return l.stream.Copy(l.words.Addr(), at, uint64(size)) }, result)
	case AtomicSet, AtomicSignal, AtomicSignalSet:
		err = g.use(uint64(size), func(l *lane) error {
			StoreWord(l.words.Addr(), size, value)
			return l.stream.Copy(at, l.words.Addr(), uint64(size))
		}, nil)
	default:
		var f *device.Function
		if f, err = g.atomics(); err != nil {
			return 0, err
		}
		err = g.use(uint64(size), func(l *lane) error {
			l.args.Reset().Uint64(at).Uint64(value).Uint64(compare).Uint64(l.words.DeviceAddr()).Uint32(uint32(op)).Uint32(uint32(size))
			return f.Launch(l.stream, device.Grid{Threads: [3]uint32{32}}, &l.args)
		}, result)
	}
	return old, err
}

// atomics is the kernel of one atomic, native/kernels/shmem/host_atomic.cpp.
func (g *GPU) atomics() (*device.Function, error) {
	g.load.Lock()
	defer g.load.Unlock()
	if g.amo != nil {
		return g.amo, nil
	}
	m, err := g.Device.LoadKernels("shmem_host_atomic")
	if err != nil {
		return nil, err
	}
	f, err := m.Function("mori_shmem_host_atomic")
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	g.module, g.amo = m, f
	return f, nil
}

// Close gives everything back. Nothing may be on its way.
func (g *GPU) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	if g.later != nil {
		errs = append(errs, g.later.Close())
	}
	for _, l := range g.all {
		errs = append(errs, l.stream.Close(), l.words.Close())
	}
	if g.module != nil {
		errs = append(errs, g.module.Close())
	}
	g.lanes, g.all, g.later, g.module, g.amo = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// NoMemory adds what callers of this package branch on to a device's answer.
func NoMemory(err error) error {
	if errors.Is(err, device.ErrNoMemory) {
		return fmt.Errorf("%w: %w", err, peers.ErrNoMemory)
	}
	return err
}

// KindOf returns what core/fabric calls a device's memory.
func KindOf(d *device.Device) fabric.MemKind {
	if d.Vendor == device.HIP {
		return fabric.MemHIP
	}
	return fabric.MemCUDA
}

// OnDevice reports whether all of size bytes at addr is memory of GPUs.
func OnDevice(addr, size uint64) bool {
	first, err := device.Lookup(addr)
	last, err2 := device.Lookup(addr + size - 1)
	return err == nil && err2 == nil && first.Kind == device.OnDevice && last.Kind == device.OnDevice
}
