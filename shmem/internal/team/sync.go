// SPDX-License-Identifier: MIT

package team

import "fmt"

// Hashes of the calls without arguments.
var (
	syncHash    = (&teamCall{kind: teamSync}).hash()
	barrierHash = (&teamCall{kind: teamBarrier}).hash()
)

// Barrier returns when all members have called it, and all their puts are complete.
func (t *Team) Barrier() error {
	if t == nil {
		return fmt.Errorf("barrier of %v: %w", t, t.usable())
	}
	if err := t.env.Drain(); err != nil {
		return fmt.Errorf("barrier of %v: %w", t, err)
	}
	return t.arrive(teamBarrier, barrierHash)
}

// Sync returns when all members have called it (shmem_team_sync).
func (t *Team) Sync() error {
	if t == nil {
		return fmt.Errorf("sync of %v: %w", t, t.usable())
	}
	return t.arrive(teamSync, syncHash)
}

// arrive is join for a call without arguments.
func (t *Team) arrive(kind teamCallKind, hash uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	same, err := t.sync(hash)
	if err == nil && !same {
		err = t.explain(&teamCall{kind: kind})
	}
	if err != nil {
		return fmt.Errorf("%v of %v: %w", teamCall{kind: kind}, t, err)
	}
	return nil
}
