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

// An Order orders this PE's queued operations and waits for them.
type Order struct {
	pes *peers.Group
	gpu *access.GPU     // nil: the heap is in host memory
	net *remote.Network // nil: all PEs are mapped
}

// NewOrder returns the Order of this PE.
func NewOrder(pes *peers.Group, gpu *access.GPU, net *remote.Network) *Order {
	return &Order{pes, gpu, net}
}

// Fence orders this PE's puts and atomics: those before the fence are visible at a PE before those
// after it.
func (o *Order) Fence() error {
	err := o.pes.Check()
	if err == nil && o.gpu != nil {
		err = o.gpu.Settle() // a GPU's queued copies have no order with its blocking ones
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

// Quiet returns when all puts of this PE are visible to all PEs, its gets have arrived, and its
// atomics are complete.
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

// Drain waits for all operations on the network and all queued copies of a GPU.
func (o *Order) Drain() error { return o.DrainBy(o.pes.Deadline()) }

// DrainBy is Drain with a deadline for the network; zero means none.
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
