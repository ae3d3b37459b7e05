// SPDX-License-Identifier: MIT

package rma

import (
	"fmt"
	"time"

	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// An Order waits for what this PE has queued, and orders it.
type Order struct {
	pes *peers.Group
	gpu *access.GPU     // nil: the heap is in host memory
	net *remote.Network // nil: all PEs are mapped
}

// NewOrder returns the Order of this PE.
func NewOrder(pes *peers.Group, gpu *access.GPU, net *remote.Network) *Order {
	return &Order{pes, gpu, net}
}

// Fence orders what this PE puts, and its atomics: what a PE gets of them before is visible there
// before what it gets later.
func (o *Order) Fence() error {
	err := o.pes.Check()
	if err == nil && o.gpu != nil {
		err = o.gpu.Settle() // what a GPU does later has no order with what it does at once
	}
	if err == nil && o.net != nil {
		err = o.net.Fence()
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	memory.Fence()
	return nil
}

// Quiet returns when everything that this PE has put is visible to all, its gets have arrived, and
// its atomics are done.
func (o *Order) Quiet() error {
	err := o.pes.Check()
	if err == nil {
		err = o.Drain()
	}
	if err != nil {
		return fmt.Errorf("quiet: %w", err)
	}
	memory.Fence()
	return nil
}

// Drain waits until everything that was given to the network, or to a GPU for later, is done.
func (o *Order) Drain() error { return o.DrainBy(o.pes.Deadline()) }

// DrainBy is Drain that gives up on the network at a deadline; zero is never.
func (o *Order) DrainBy(deadline time.Time) error {
	if o.gpu != nil {
		if err := o.gpu.Settle(); err != nil {
			return err
		}
	}
	if o.net == nil {
		return nil
	}
	return o.net.Quiet(deadline)
}
