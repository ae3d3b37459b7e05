// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/shmem"
)

// agree returns nil if cause is nil on all ranks. Otherwise it returns an error on all of them.
// Collective.
func agree(w *shmem.World, cause error) error {
	failed := []uint64{flag64(cause != nil)}
	err := errors.Join(cause, maximum(w, failed))
	if err == nil && failed[0] != 0 {
		err = fmt.Errorf("the call failed on another rank: %w", shmem.ErrElsewhere)
	}
	return err
}

// agreeOnHosts is agree, and makes sure that each rank has the same number of ranks on its host.
// Collective.
func agreeOnHosts(w *shmem.World, perHost int, cause error) error {
	values := []uint64{flag64(cause != nil), uint64(perHost), ^uint64(perHost)}
	err := errors.Join(cause, maximum(w, values))
	switch most, least := values[1], ^values[2]; {
	case err == nil && values[0] != 0:
		return fmt.Errorf("the call failed on another rank: %w", shmem.ErrElsewhere)
	case err == nil && most != least:
		return fmt.Errorf("hosts have between %d and %d ranks that reach each other by loads and stores, want equal numbers: %w",
			least, most, errors.ErrUnsupported)
	}
	return err
}

// maximum replaces each value by the largest one of all ranks. Collective.
func maximum(w *shmem.World, values []uint64) error {
	n := uint64(len(values))
	at, err := w.MallocHost(plan.WordBytes, n*plan.WordBytes)
	if err != nil {
		return err
	}
	for i, v := range values {
		memory.Store64(at+uint64(i)*plan.WordBytes, v)
	}
	err = w.TeamWorld().Reduce(shmem.ReduceMax, fabric.Uint64, at, at, n)
	for i := range values {
		values[i] = memory.Load64(at + uint64(i)*plan.WordBytes)
	}
	return errors.Join(err, w.Free(at))
}
