// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"slices"
	"sync"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem"
)

// A Set makes the ops of a World, and frees those that all ranks have dropped. Ranks drop an op at
// different times, each when its last user is gone. Freeing is collective, so it happens when the
// ranks make the next op. Safe for concurrent use, but for New and Close.
type Set struct {
	world *shmem.World

	mu      sync.Mutex
	made    []*Op // and not closed, in the order in which all ranks made them
	dropped map[*Op]bool
}

// NewSet returns a set without ops.
func NewSet(w *shmem.World) *Set { return &Set{world: w, dropped: map[*Op]bool{}} }

// New frees the ops that all ranks have dropped and makes an op. Collective.
func (s *Set) New(cfg Config, opts Options) (*Op, error) {
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("free ops that all ranks have dropped: %w", err)
	}
	o, err := New(s.world, cfg, opts)
	if err == nil {
		s.mu.Lock()
		s.made = append(s.made, o)
		s.mu.Unlock()
	}
	return o, err
}

// Drop notes that this rank does not use o any more.
func (s *Set) Drop(o *Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.made, o) {
		o.Leave()
		s.dropped[o] = true
	}
}

// Close closes an op of the set at once. Collective.
func (s *Set) Close(o *Op) error {
	s.mu.Lock()
	s.made = slices.DeleteFunc(s.made, func(other *Op) bool { return other == o })
	delete(s.dropped, o)
	s.mu.Unlock()
	return o.Close()
}

// sweep closes the ops that all ranks have dropped.
func (s *Set) sweep() error {
	s.mu.Lock()
	made := slices.Clone(s.made)
	mine := make([]byte, len(made))
	for i, o := range made {
		if s.dropped[o] {
			mine[i] = 1
		}
	}
	s.mu.Unlock()
	if len(made) == 0 {
		return nil
	}
	n := uint64(len(made))
	at, err := s.world.MallocHost(1, n)
	if err != nil {
		return err
	}
	all := memory.Bytes(at, n)
	copy(all, mine)
	if err := s.world.TeamWorld().Reduce(shmem.ReduceAnd, fabric.Uint8, at, at, n); err != nil {
		return err
	}
	copy(mine, all)
	if err := s.world.Free(at); err != nil {
		return err
	}
	for i, o := range made {
		if mine[i] == 0 {
			continue
		}
		if err := s.Close(o); err != nil {
			return err
		}
	}
	return nil
}
