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

// A GPU accesses heaps on GPUs: the driver copies, and a kernel of one thread executes atomics. It
// is bound to this PE's device, which also reaches the mapped memory of other PEs' devices.
//
// Blocking calls use a lane each and are complete when they return, so they are ordered.
// Non-blocking calls use one stream, in order. Calls do not wait for the user's streams: the user
// waits for a kernel before a call here reads its results.
type GPU struct {
	Device  *device.Device
	timeout time.Duration // time limit of a wait, 0: none
	ask     func() error  // returns an error to end a wait; nil: never ends one

	// Known reports whether n bytes at addr exist as long as this GPU is in use. Check then need
	// not query the driver. A nil Known knows no memory.
	Known func(addr, n uint64) bool

	mu    sync.Mutex
	lanes []*lane // free lanes
	all   []*lane // all lanes
	later *device.Stream
	due   uint64 // bytes queued on later since settle

	load   sync.Mutex
	module *device.Module // kernel for atomics, loaded on first use
	amo    *device.Function
}

// NewGPU returns the access to memory through device d. A wait ends after timeout (0: never) or
// when ask returns an error. ask may be nil.
func NewGPU(d *device.Device, timeout time.Duration, ask func() error) *GPU {
	return &GPU{Device: d, timeout: timeout, ask: ask}
}

// Prepare creates n lanes and loads the atomics kernel in advance, because creating them may wait
// for work that runs on the device.
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

// Wait waits for a stream within the World's time limit, and calls ask from time to time.
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

// Check rejects addresses that are neither device memory nor memory of this process. A driver would
// end the process over them. Querying a driver takes as long as a small put, so Check does not
// query memory of heaps, and queries an allocation only once.
func (g *GPU) Check(addr, n uint64) error {
	if n == 0 || g.Known != nil && g.Known(addr, n) {
		return nil
	}
	p, err := device.Lookup(addr)
	if err == nil && p.Kind != device.Unknown && addr+n-1-p.Base >= p.Bytes { // the range ends in another allocation, or the driver does not know it
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

// copyOverlap copies through a buffer, because a driver may copy in any order.
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

// Follow makes a stream wait for what was queued with MoveLater.
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
	return errors.Join(err, e.Close()) // the driver keeps an event that a stream waits for
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

// Atomic uses copies for loads and stores, which are atomic for a word, and a kernel for all other
// ops.
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

// atomics is the kernel that executes one atomic, native/kernels/shmem/host_atomic.cpp.
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

// Close frees everything. No operation may be pending.
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

// NoMemory maps a device's error to the errors that callers of this package check for.
func NoMemory(err error) error {
	if errors.Is(err, device.ErrNoMemory) {
		return fmt.Errorf("%w: %w", err, peers.ErrNoMemory)
	}
	return err
}

// KindOf returns core/fabric's kind of a device's memory.
func KindOf(d *device.Device) fabric.MemKind {
	if d.Vendor == device.HIP {
		return fabric.MemHIP
	}
	return fabric.MemCUDA
}

// OnDevice reports whether all of size bytes at addr are GPU memory.
func OnDevice(addr, size uint64) bool {
	first, err := device.Lookup(addr)
	last, err2 := device.Lookup(addr + size - 1)
	return err == nil && err2 == nil && first.Kind == device.OnDevice && last.Kind == device.OnDevice
}
