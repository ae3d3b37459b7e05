// SPDX-License-Identifier: MIT

package team

import (
	"fmt"

	"mori/shmem/internal/peers"
)

// Broadcast copies n bytes at src of member root to dest of all members, including root. dest and
// src are symmetric, and equal or disjoint (shmem_broadcastmem).
func (t *Team) Broadcast(dest, src, n uint64, root int) error {
	if err := t.usable(); err != nil {
		return fmt.Errorf("broadcast of %v: %w", t, err)
	}
	o, bad := t.operands(dest, n, src, n, true)
	if bad == nil && uint(root) >= uint(len(t.members)) {
		bad = fmt.Errorf("PE %d does not exist, want 0 to %d: %w", root, len(t.members)-1, peers.ErrInvalid)
	}
	c := teamCall{kind: teamBroadcast, args: [recordLen - 1]uint64{o.destOff, o.srcOff, n, uint64(root)}}
	return t.together(&c, bad, func() error {
		if n == 0 {
			return nil
		}
		return t.spread(&o, root, root+1, func(int) (uint64, uint64) { return 0, n })
	})
}
