// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	"mori/core/internal/sys"
)

// Bits of an entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst of Linux).
const (
	pagePresent   = 1 << 63
	pageProtected = 1 << 57 // writes wait for a handler of userfaultfd

	pageEntry = 8 // bytes
)

// A pageMap tells which pages of a process are in memory. The file is that of the address space
// which the process had when it was opened. A nil pageMap knows nothing.
type pageMap struct{ file *os.File }

// ownPages is the pageMap of this process.
var ownPages = sync.OnceValue(func() *pageMap { return openPageMap(os.Getpid()) })

// openPageMap returns nil if this process may not see the pages of process pid.
func openPageMap(pid int) *pageMap {
	file, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return nil
	}
	return &pageMap{file}
}

// Close closes the file, unless it is that of ownPages, which stays open.
func (p *pageMap) Close() {
	if p != nil && p != ownPages() {
		_ = p.file.Close() // nothing is written to it
	}
}

// present reports whether all pages of list are in memory, so that a copy waits for nobody's fault
// handler. Pages may leave memory right after the answer. It reads a segment's entries to scratch,
// and reports false if they find no room there.
func (p *pageMap) present(list []sys.Iovec, scratch []byte) bool {
	if p == nil {
		return false
	}
	page := uint64(os.Getpagesize())
	for _, segment := range list {
		if segment.Len == 0 {
			continue
		}
		first, last := segment.Addr/page, (segment.Addr+segment.Len-1)/page
		if last-first >= uint64(len(scratch)/pageEntry) {
			return false
		}
		entries := scratch[:(last-first+1)*pageEntry]
		if _, err := p.file.ReadAt(entries, int64(first*pageEntry)); err != nil {
			return false
		}
		for ; len(entries) > 0; entries = entries[pageEntry:] {
			if e := binary.NativeEndian.Uint64(entries); e&pagePresent == 0 || e&pageProtected != 0 {
				return false
			}
		}
	}
	return true
}
