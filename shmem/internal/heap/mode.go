// SPDX-License-Identifier: MIT

package heap

import "fmt"

// A Mode is how the symmetric heap is made.
type Mode int

// The modes, MORI_SHMEM_MODE.
const (
	StaticHeap Mode = iota // one block of HeapSize
	VMMHeap                // grows in chunks up to HeapSize
	Isolation              // each allocation is a block of its own
)

// ModeNames are the modes as MORI_SHMEM_MODE names them.
var ModeNames = [...]string{StaticHeap: "static_heap", VMMHeap: "vmm_heap", Isolation: "isolation"}

// String returns the mode as MORI_SHMEM_MODE names it.
func (m Mode) String() string {
	if m < 0 || int(m) >= len(ModeNames) {
		return fmt.Sprintf("mode %d", int(m))
	}
	return ModeNames[m]
}
