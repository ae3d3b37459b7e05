// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// holdTime is the time limit of the copies that Hold makes.
const holdTime = 30 * time.Second

// most returns the limit of pinned memory. The lock is held.
func (s *Staging) most() uint64 {
	if s.held > 0 {
		return s.pinned
	}
	return mostStaging
}

// Hold opens the device's Staging, pins its full 32 MiB, and uses once everything that its copies
// need, until release, which is called once. After that, nothing in the Staging waits for kernels
// of the device. A caller whose kernels wait for bytes from the Staging holds it before the first
// of them runs. The copies then avoid:
//
//   - Allocations, new streams, and code that is not loaded: drivers may make them wait for running
//     kernels.
//   - Kernels: a GPU takes them from 8 queues, so a kernel may be behind one of another stream that
//     waits for it; or kernels fill the GPU. So only copy engines copy.
//
// On H200s, kernels did not see a peer's write over tcp within 20 s, neither before Hold existed
// nor while it copied by kernels. Since copy engines copy, all do. The hardware queues as the cause
// are inferred.
func (d *Device) Hold() (release func() error, err error) {
	s := d.OpenStaging()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == 0 {
		err = s.prepare()
	}
	if err != nil {
		s.users--
		return nil, errors.Join(fmt.Errorf("reserve the staging buffers of %s: %w", d, err), s.trim())
	}
	s.held++
	return func() error {
		s.mu.Lock()
		s.held--
		s.resting()
		s.mu.Unlock()
		return s.Close()
	}, nil
}

// prepare pins the buffers and warms up the copier. The lock is held.
func (s *Staging) prepare() error {
	for class, n := range [2]int{heldSmall, heldLong} {
		for len(s.free[class]) < n {
			b, err := s.pin(class)
			if err != nil {
				return err
			}
			s.free[class] = append(s.free[class], b)
		}
	}
	if s.copier == nil || s.copier.opts.EngineFrom != 1 { // buffers of an earlier Hold stay
		c, err := s.dev.NewCopier(CopierOptions{Depth: stagingDepth, EngineFrom: 1, Priority: Urgent})
		if err != nil {
			return err
		}
		s.copier, s.retired = c, s.copier
	}
	ctx, cancel := context.WithTimeout(context.Background(), holdTime)
	defer cancel()
	return s.copier.warm(ctx, s.free[1][0].mem)
}

// warm initialises everything that copies by the engines need, and makes one copy each way on each
// stream. scratch is unused memory.
func (c *Copier) warm(ctx context.Context, scratch *HostMemory) error {
	m, err := c.dev.Alloc(wordBytes)
	if err != nil {
		return err
	}
	for range c.short.of {
		_, one := c.line(1)
		err = errors.Join(err, one)
	}
	for range c.long.of {
		_, one := c.line(shortCopy + 1)
		err = errors.Join(err, one)
	}
	var slots []*copySlot
	for range c.opts.Depth {
		s, one := c.take()
		if one != nil {
			err = errors.Join(err, one)
			break
		}
		slots = append(slots, s)
	}
	for _, s := range slots {
		c.give(s)
	}
	for _, s := range slices.Concat(c.short.of, c.long.of) {
		if err != nil {
			break
		}
		err = errors.Join(s.Copy(scratch.Addr(), m.Addr(), wordBytes), s.Copy(m.Addr(), scratch.Addr(), wordBytes), s.Wait(ctx))
	}
	return errors.Join(err, m.Close())
}
