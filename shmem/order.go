// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"
	"time"

	"mori/core/memory"
)

// Fence orders what this PE puts, and its atomics: what a PE gets of them before is visible there before what it gets later.
func (w *World) Fence() error {
	err := w.pes.Check()
	if err == nil && w.gpu != nil {
		err = w.gpu.Settle() // what a GPU does later has no order with what it does at once
	}
	if err == nil && w.net != nil {
		err = w.net.Fence()
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	memory.Fence()
	return nil
}

// Quiet returns when everything that this PE has put is visible to all, its gets have arrived, and its atomics are done.
func (w *World) Quiet() error {
	err := w.pes.Check()
	if err == nil {
		err = w.drain()
	}
	if err != nil {
		return fmt.Errorf("quiet: %w", err)
	}
	memory.Fence()
	return nil
}

// drain waits until everything that was given to the network, or to a GPU for later, is done.
func (w *World) drain() error { return w.drainBy(w.pes.Deadline()) }

// drainBy is drain that gives up on the network at a deadline; zero is never.
func (w *World) drainBy(deadline time.Time) error {
	if w.gpu != nil {
		if err := w.gpu.Settle(); err != nil {
			return err
		}
	}
	if w.net == nil {
		return nil
	}
	return w.net.Quiet(deadline)
}
