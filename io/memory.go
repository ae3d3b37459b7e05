// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/io/internal/region"
	"mori/io/internal/transfer"
)

const deregisterWait = 5 * time.Second

// RegisterMemory gives every holder of the descriptor access to size bytes at addr. It does not
// touch the memory. The caller owns it and must keep it mapped until DeregisterMemory returns. Host
// memory must be readable and writable by this process; otherwise the error names the first bad
// page. GPU memory is checked with the driver. It must lie within one allocation, on the device
// with this ordinal, or on any device if ordinal is negative. If the location is unknown,
// RegisterMemory asks the driver.
func (e *Engine) RegisterMemory(addr, size uint64, ordinal int, loc MemoryLocation) (MemoryDesc, error) {
	if e.closed.Load() {
		return NewMemoryDesc(), fmt.Errorf("register memory: %w", ErrClosed)
	}
	r, err := region.New(&e.self, region.Request{Addr: addr, Size: size, Ordinal: ordinal, Location: loc,
		AskDrivers: e.backends.MovesGPUMemory(), Export: e.backends.Has(BackendXGMI)})
	if err != nil {
		return NewMemoryDesc(), err
	}
	e.regions.Add(r)
	for _, tr := range e.backends.Transports() {
		if err := r.Attach(tr); err != nil {
			e.regions.Remove(r.Desc().ID)
			return NewMemoryDesc(), errors.Join(err, r.Revoke())
		}
	}
	return *r.Desc(), nil
}

// DeregisterMemory revokes a region. It waits for transfers that use it on this side until their
// deadline, at most deregisterWait, and then closes their paths. When it returns, nothing accesses
// the memory any more. Unknown or foreign descriptors are ignored.
func (e *Engine) DeregisterMemory(d MemoryDesc) error {
	r := e.regions.Of(d, e.self.Key)
	if r == nil || !e.regions.Remove(r.Desc().ID) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), deregisterWait)
	defer cancel()
	if err := r.Retire(ctx); err != nil {
		for _, p := range e.peers.All() {
			p.ClosePaths(fmt.Errorf("region %d deregistered with a transfer stuck: %w", r.Desc().ID,
				ErrBadState))
			p.Pending.Parked.Fail(func(t *transfer.Transfer) error {
				if t.Pair().Local != r {
					return nil
				}
				return r.Gone()
			})
		}
	}
	return r.Revoke()
}
