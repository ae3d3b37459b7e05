// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Buffer sizes of a Staging.
const (
	// StageBytes is the large size.
	StageBytes = 1 << 20
	// smallStage is the small size.
	smallStage = 64 << 10
	// mostStaging limits the pinned memory of a device's Staging. Outward buffers, which are held
	// for as long as a network takes, may use half of it.
	mostStaging = 64 << 20
	// heldSmall and heldLong are the numbers of buffers that a Hold pins.
	heldSmall, heldLong = 128, 24
	// stagingIdle is how long unused buffers are kept.
	stagingIdle = 3 * time.Second
	// stagingDepth is the limit of pending copies.
	stagingDepth = 16
	// stagingEngine is the segment size from which copy engines copy, because they need no part of
	// the GPU that kernels could use. A buffer of such segments takes 16 copies: about 30 µs to
	// start, and 20 µs over PCIe.
	stagingEngine = 64 << 10
)

var stageSizes = [2]uint64{smallStage, StageBytes}

// An Outwardness is the direction of a buffer's bytes.
type Outwardness int

// Inward buffers fill device memory and are free right after. Outward ones wait for the network, so
// they may never take all memory.
const (
	Inward Outwardness = iota
	Outward
)

// A Staging is pinned host memory that carries device memory over transports that access host
// memory only. All users of a device share one. It holds no memory while unused.
type Staging struct {
	dev *Device

	mu      sync.Mutex
	users   int // number of users
	copier  *Copier
	retired *Copier           // pinned before a Hold
	free    [2][]*StageBuffer // small, long
	pinned  uint64
	outward uint64
	lent    int
	held    int // number of Holds
	idle    *time.Timer
}

// stagings holds the Staging of each device.
var stagings struct {
	sync.Mutex
	of map[*Device]*Staging
}

// OpenStaging returns the device's Staging. It pins nothing yet.
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

// Device returns the device that it serves.
func (s *Staging) Device() *Device { return s.dev }

// Close is called once by each user, who holds no buffer any more. The last Close frees everything.
func (s *Staging) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	return s.trim()
}

// trim frees unused buffers. The lock is held.
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

// A StageBuffer is a buffer in use.
type StageBuffer struct {
	staging *Staging
	mem     *HostMemory
	copier  *Copier
	class   int
	outward bool
}

// Addr returns its address for the host.
func (b *StageBuffer) Addr() uint64 { return b.mem.Addr() }

// DeviceAddr returns its address for the device.
func (b *StageBuffer) DeviceAddr() uint64 { return b.mem.DeviceAddr() }

// Copy starts copying segments between the buffer and device memory; see Copier.Start.
func (b *StageBuffer) Copy(segs []CopySegment) (Copy, error) { return b.copier.Start(segs) }

// Take returns a buffer of at least n bytes, StageBytes at most. It returns ErrBusy if all buffers
// are in use; Free makes room.
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

// find returns a free buffer or pins one. The lock is held.
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
	if s.pinned+size > mostStaging { // the other size has free buffers, or none exist
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
		return nil, ErrBusy // fewer suffice
	}
	return b, err
}

// pin creates a buffer. The lock is held.
func (s *Staging) pin(class int) (*StageBuffer, error) {
	m, err := s.dev.AllocHost(stageSizes[class])
	if err != nil {
		return nil, fmt.Errorf("%w: copies of GPU memory need pinned memory: raise the limits of locked memory (ulimit -l) and of the container's memory", err)
	}
	s.pinned += m.Bytes()
	return &StageBuffer{staging: s, mem: m, class: class}, nil
}

// Free releases b. No copy may use it any more.
func (b *StageBuffer) Free() {
	s := b.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[b.class] = append(s.free[b.class], b)
	s.returned(b)
}

// Lose gives up b, because a copy failed and may still run. It is unpinned if the driver allows it,
// and not reused.
func (b *StageBuffer) Lose() error {
	s := b.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned -= b.mem.Bytes()
	s.returned(b)
	return b.mem.Close()
}

// returned counts a released buffer. The lock is held.
func (s *Staging) returned(b *StageBuffer) {
	if b.outward {
		s.outward -= b.mem.Bytes()
	}
	s.lent--
	s.resting()
}

// resting starts the time after which unused buffers are freed. The lock is held.
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

// rest frees buffers that have been unused for a while.
func (s *Staging) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent == 0 {
		_ = s.trim() // buffers that cannot be freed stay in Live
	}
}
