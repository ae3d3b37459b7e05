// SPDX-License-Identifier: MIT

package shmem

import "mori/core/memory"

// Small ops between PEs that map each other's heap are a matter of nanoseconds, and most of that went into finding the word. So they try
// this first, which knows the usual case only and says nothing of what else there is. Everything else is looked at again, by what
// knows it all.

// near is where this process has PE pe's copy of n bytes at the symmetric address addr, if all is well and that is in a mapped heap; else 0.
func (w *World) near(addr, n uint64, pe int) uint64 {
	b := w.usual.Load()
	if b == nil || uint(pe) >= uint(len(b.peers)) {
		return 0
	}
	off, have, at := addr-b.base, b.have.Load(), b.peers[pe].mapped
	if at == 0 || off >= have || n > have-off {
		return 0
	}
	return at + off
}

// inHeap reports whether n bytes at addr, at least one, are of the heap: this PE's, or what is mapped here of another's.
func (w *World) inHeap(addr, n uint64) bool {
	b := w.heap
	if b == nil {
		return false
	}
	have := b.have.Load()
	for i := range b.peers {
		at := b.peers[i].mapped
		if off := addr - at; at != 0 && off < have && n <= have-off {
			return true
		}
	}
	return false
}

// waits reports whether PE pe, whose memory is mapped, is to be stirred.
func (w *World) waits(pe int) bool {
	return memory.Load32(w.control.peers[pe].mapped+sleepsAt)&onHeap != 0
}
