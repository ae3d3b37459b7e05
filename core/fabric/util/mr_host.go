// SPDX-License-Identifier: MIT

package util

import "mori/core/fabric"

// Host returns a region of host memory that has all n bytes at addr, kept open until Release, or
// nil without such a region: for providers that let devices at local memory, which needs no
// descriptor.
func (t *MRTable) Host(addr, n uint64) *MR {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, m := range t.byID {
		b := &m.buf
		if b.Kind == fabric.MemHost && addr >= b.Addr && addr-b.Addr <= b.Len && n <= b.Len-(addr-b.Addr) && m.enter() {
			return m
		}
	}
	return nil
}
