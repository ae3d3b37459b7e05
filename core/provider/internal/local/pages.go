// SPDX-License-Identifier: MIT

package local

import (
	"encoding/binary"
	"fmt"
	"os"

	"mori/core/internal/sys"
)

// Bits of an entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst of Linux).
const (
	pagePresent   = 1 << 63
	pageProtected = 1 << 57 // writes wait for a userfaultfd handler

	// PageEntry is the size of an entry in bytes.
	PageEntry = 8
)

// Pages reports which pages of a process are in memory. The file refers to the address space that
// the process had when the file was opened. A nil Pages knows nothing.
type Pages struct{ file *os.File }

// OpenPages returns nil if this process may not see the pages of process pid.
func OpenPages(pid int) *Pages {
	file, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return nil
	}
	return &Pages{file}
}

// Close closes the file.
func (p *Pages) Close() {
	if p != nil {
		_ = p.file.Close() // nothing is written to it
	}
}

// Present reports whether all pages of list are in memory, so that a copy does not wait for a fault
// handler. Pages may leave memory right after the call. Present reads a segment's pagemap entries
// into scratch, and returns false if scratch is too small.
func (p *Pages) Present(list []sys.Iovec, scratch []byte) bool {
	if p == nil {
		return false
	}
	page := uint64(os.Getpagesize())
	for _, segment := range list {
		if segment.Len == 0 {
			continue
		}
		first, last := segment.Addr/page, (segment.Addr+segment.Len-1)/page
		if last-first >= uint64(len(scratch)/PageEntry) {
			return false
		}
		entries := scratch[:(last-first+1)*PageEntry]
		if _, err := p.file.ReadAt(entries, int64(first*PageEntry)); err != nil {
			return false
		}
		for ; len(entries) > 0; entries = entries[PageEntry:] {
			if e := binary.NativeEndian.Uint64(entries); e&pagePresent == 0 || e&pageProtected != 0 {
				return false
			}
		}
	}
	return true
}
