// SPDX-License-Identifier: MIT

package team

import "fmt"

// FCollect concatenates the n bytes at src of all members at dest of all members, in member order
// (shmem_fcollectmem). dest and src are symmetric and must not overlap.
func (t *Team) FCollect(dest, src, n uint64) error {
	if err := t.usable(); err != nil {
		return fmt.Errorf("fcollect of %v: %w", t, err)
	}
	all, bad := times(n, uint64(len(t.members)))
	var o operands
	if bad == nil {
		o, bad = t.operands(dest, all, src, n, false)
	}
	c := teamCall{kind: teamFCollect, args: [recordLen - 1]uint64{o.destOff, o.srcOff, n}}
	return t.together(&c, bad, func() error {
		if n == 0 {
			return nil
		}
		return t.spread(&o, 0, len(t.members), func(rank int) (uint64, uint64) { return uint64(rank) * n, n })
	})
}

// Collect is FCollect with a length for each member, which may be 0 (shmem_collectmem).
func (t *Team) Collect(dest, src, n uint64) error {
	if err := t.usable(); err != nil {
		return fmt.Errorf("collect of %v: %w", t, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := teamCall{kind: teamCollect}
	if err := t.collect(&c, dest, src, n); err != nil {
		return t.failed(&c, err)
	}
	return nil
}

// collect first exchanges the lengths, which determine the offsets.
func (t *Team) collect(c *teamCall, dest, src, n uint64) error {
	_, bad := t.operands(dest, 0, src, n, false)
	said, err := t.exchange(c, bad, record{n})
	if err != nil {
		return err
	}
	offs := make([]uint64, len(said)+1)
	for rank, r := range said {
		offs[rank+1] = offs[rank] + r[0] // every PE has that much memory, so the sum does not overflow
	}
	all := offs[len(said)]
	var o operands
	if bad == nil {
		o, bad = t.operands(dest, all, src, n, false)
	}
	*c = teamCall{kind: teamCollectAll, args: [recordLen - 1]uint64{o.destOff, all}}
	if err := t.join(c, bad); err != nil {
		return err
	}
	if all > 0 {
		err = t.spread(&o, 0, len(t.members), func(rank int) (uint64, uint64) { return offs[rank], offs[rank+1] - offs[rank] })
	}
	return t.finish(err)
}
