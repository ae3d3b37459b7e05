// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Buffers of a Staging.
const (
	// StageBytes is the longest.
	StageBytes = 1 << 20
	// smallStage is the other length.
	smallStage = 64 << 10
	// mostStaging is how much a device's Staging pins. Half of it is for Outward, which is held for as
	// long as a network takes.
	mostStaging = 64 << 20
	// heldSmall and heldLong are how many buffers a Hold pins.
	heldSmall, heldLong = 128, 24
	// stagingIdle is how long it keeps what nobody uses.
	stagingIdle = 3 * time.Second
	// stagingDepth is how many copies may be under way.
	stagingDepth = 16
	// stagingEngine is the segment from which copy engines do it: they need no part of the GPU that
	// kernels could use. A buffer of such segments takes 16 copies, about 30 µs to begin, and 20 µs
	// over PCIe.
	stagingEngine = 64 << 10
)

var stageSizes = [2]uint64{smallStage, StageBytes}

// An Outwardness is where a buffer's bytes go.
type Outwardness int

// Inward buffers fill memory of the device, and are free as soon as that is done. Outward ones wait
// for somebody else, so they never take all there is.
const (
	Inward Outwardness = iota
	Outward
)

// A Staging is pinned host memory through which a device's memory goes over what reaches host
// memory only. There is one for each device, shared by who opened it; it holds nothing while nobody
// uses it.
type Staging struct {
	dev *Device

	mu      sync.Mutex
	users   int // who opened it
	copier  *Copier
	retired *Copier           // from before a Hold
	free    [2][]*StageBuffer // small, long
	pinned  uint64
	outward uint64
	lent    int
	held    int // Holds
	idle    *time.Timer
}

// stagings are those of all devices.
var stagings struct {
	sync.Mutex
	of map[*Device]*Staging
}

// OpenStaging gives the device's Staging. Nothing is pinned yet.
func (d *Device) OpenStaging() *Staging {
	stagings.Lock()
	defer stagings.Unlock()
	if stagings.of == nil {
		stagings.of = make(map[*Device]*Staging)
	}
	s := stagings.of[d]
	if s == nil {
		s = &Staging{dev: d}
		stagings.of[d] = s
	}
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
	return s
}

// Device is whose memory it is for.
func (s *Staging) Device() *Device { return s.dev }

// Close is called once by each who opened it, with no buffer left. The last one gives all back.
func (s *Staging) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	return s.trim()
}

// trim gives back what nobody uses. With the lock held.
func (s *Staging) trim() error {
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.held > 0 {
		return nil
	}
	var errs []error
	for i, list := range s.free {
		for _, b := range list {
			s.pinned -= b.mem.Bytes()
			errs = append(errs, b.mem.Close())
		}
		s.free[i] = nil
	}
	for _, c := range []**Copier{&s.copier, &s.retired} {
		if *c != nil && s.lent == 0 {
			errs = append(errs, (*c).Close())
			*c = nil
		}
	}
	return errors.Join(errs...)
}

// A StageBuffer is one that was taken.
type StageBuffer struct {
	staging *Staging
	mem     *HostMemory
	copier  *Copier
	class   int
	outward bool
}

// Addr is where the host sees it.
func (b *StageBuffer) Addr() uint64 { return b.mem.Addr() }

// DeviceAddr is where the device sees it.
func (b *StageBuffer) DeviceAddr() uint64 { return b.mem.DeviceAddr() }

// Copy begins to copy segments between the buffer and memory of the device; see Copier.Start.
func (b *StageBuffer) Copy(segs []CopySegment) (Copy, error) { return b.copier.Start(segs) }

// Take gives a buffer of n bytes or more, StageBytes at most. ErrBusy: all buffers are in use,
// and Free makes room.
func (s *Staging) Take(n uint64, to Outwardness) (*StageBuffer, error) {
	class := 0
	if n > smallStage {
		class = 1
	}
	if n > StageBytes {
		return nil, fmt.Errorf("take a staging buffer of %d bytes, the largest has %d: %w", n, StageBytes, ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held > 0 && class == 0 && len(s.free[0]) == 0 {
		class = 1
	}
	if to == Outward && s.outward+stageSizes[class] > s.most()/2 {
		return nil, ErrBusy
	}
	if s.copier == nil {
		c, err := s.dev.NewCopier(CopierOptions{Depth: stagingDepth, EngineFrom: stagingEngine, Priority: Urgent})
		if err != nil {
			return nil, err
		}
		s.copier = c
	}
	b, err := s.find(class)
	if err != nil {
		return nil, err
	}
	b.copier = s.copier
	if b.outward = to == Outward; b.outward {
		s.outward += b.mem.Bytes()
	}
	s.lent++
	if s.idle != nil {
		s.idle.Stop()
	}
	return b, nil
}

// find takes a free buffer or pins one. With the lock held.
func (s *Staging) find(class int) (*StageBuffer, error) {
	size := stageSizes[class]
	if n := len(s.free[class]); n > 0 {
		b := s.free[class][n-1]
		s.free[class] = s.free[class][:n-1]
		return b, nil
	}
	if s.held > 0 {
		return nil, ErrBusy
	}
	if s.pinned+size > mostStaging { // the other length has free ones, or nobody has
		for _, b := range s.free[1-class] {
			s.pinned -= b.mem.Bytes()
			if err := b.mem.Close(); err != nil {
				return nil, err
			}
		}
		s.free[1-class] = nil
	}
	if s.pinned+size > mostStaging {
		return nil, ErrBusy
	}
	b, err := s.pin(class)
	if err != nil && s.lent > 0 {
		return nil, ErrBusy // fewer will do
	}
	return b, err
}

// pin makes a buffer. With the lock held.
func (s *Staging) pin(class int) (*StageBuffer, error) {
	m, err := s.dev.AllocHost(stageSizes[class])
	if err != nil {
		return nil, fmt.Errorf("%w: copies of GPU memory need pinned memory: raise the limits of locked memory (ulimit -l) and of the container's memory", err)
	}
	s.pinned += m.Bytes()
	return &StageBuffer{staging: s, mem: m, class: class}, nil
}

// Free gives b back, which nothing copies any more.
func (b *StageBuffer) Free() {
	s := b.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[b.class] = append(s.free[b.class], b)
	s.returned(b)
}

// Lose gives up b, since a copy failed and may still run: it is unpinned if the driver does that,
// and not used again.
func (b *StageBuffer) Lose() error {
	s := b.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned -= b.mem.Bytes()
	s.returned(b)
	return b.mem.Close()
}

// returned counts. With the lock held.
func (s *Staging) returned(b *StageBuffer) {
	if b.outward {
		s.outward -= b.mem.Bytes()
	}
	s.lent--
	s.resting()
}

// resting begins the time after which what nobody uses is given back. With the lock held.
func (s *Staging) resting() {
	if s.lent > 0 {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(stagingIdle, s.rest)
	} else {
		s.idle.Reset(stagingIdle)
	}
}

// rest trims what has not been used for a while.
func (s *Staging) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent == 0 {
		_ = s.trim() // what cannot be given back stays in Live
	}
}
