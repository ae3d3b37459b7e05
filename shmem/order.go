// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"

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
