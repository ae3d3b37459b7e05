// SPDX-License-Identifier: MIT

package shm

import (
	"os"
	"syscall"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
)

// untouched returns n bytes that no page of memory is behind yet.
func untouched(t *testing.T, n int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	return b
}

func TestPresentPages(t *testing.T) {
	page := os.Getpagesize()
	b := untouched(t, 8*page)
	for at := range 3 {
		b[at*page] = 1
	}
	b[4*page] = 1
	pages := openPageMap(os.Getpid())
	if pages == nil {
		t.Fatal("this process may not see its own pages")
	}
	if err := syscall.Madvise(b[page:2*page], syscall.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	scratch := make([]byte, 4*pageEntry)
	for _, c := range []struct {
		at, n int
		want  bool
	}{
		{0, 1, true}, {0, page, true}, {0, 0, true}, {7 * page, 0, true},
		{0, page + 1, false}, {page, 1, false}, {2 * page, page, true}, {2*page + 5, page - 5, true},
		{2*page + 5, page, false}, {3 * page, 8, false}, {4*page - 1, 2, false}, {4 * page, page, true},
	} {
		list := []sys.Iovec{{Addr: sys.AddrOf(b) + uint64(c.at), Len: uint64(c.n)}}
		if got := pages.present(list, scratch); got != c.want {
			t.Errorf("%d bytes at %d: present %v, want %v", c.n, c.at, got, c.want)
		}
		// One segment that is not present is enough.
		both := append([]sys.Iovec{{Addr: sys.AddrOf(b), Len: 8}}, list...)
		if got := pages.present(both, scratch); got != c.want {
			t.Errorf("8 bytes, and %d at %d: present %v, want %v", c.n, c.at, got, c.want)
		}
	}
	if pages.present([]sys.Iovec{{Addr: sys.AddrOf(b), Len: 1}}, nil) {
		t.Error("present without room to read an entry")
	}
	if (*pageMap)(nil).present(nil, scratch) {
		t.Error("present without a page map")
	}
	pages.Close()
	if pages.present([]sys.Iovec{{Addr: sys.AddrOf(b), Len: 1}}, scratch) {
		t.Error("present after the page map was closed")
	}
}

// TestSmallOpsWithMissingPagesGoToTheWorkers copies a small op at once if all its pages are in
// memory, and leaves it to a worker if one is missing.
func TestSmallOpsWithMissingPagesGoToTheWorkers(t *testing.T) {
	a, b := newPair(t, wayCMA)
	lendRegion(t, b, 1, 4096, allRights)
	here, _ := memory(t, 4096)
	write := func(ticket conn.Ticket, from []byte) {
		if !a.mover.RMA(ticket, rmaOp(fabric.OpWrite, from, 0), regionKey(1)) {
			t.Fatal("the write is handed back to the stream")
		}
	}
	write(1, here[:8]) // it waits for the grant
	if err := a.wait(t, 1); err != nil {
		t.Fatal(err)
	}
	if write(2, here[:8]); a.running(2) {
		t.Error("a write of 8 bytes that are in memory is left to a worker")
	}
	missing, copies := untouched(t, 4096), make(chan struct{})
	copyNow := a.mover.vm.write
	a.mover.vm.write = func(pid int, local, remote []sys.Iovec) (int, error) {
		<-copies
		return copyNow(pid, local, remote)
	}
	if write(3, missing[:8]); !a.running(3) { // else it has waited for copies, for ever
		t.Error("a write of a page that is not in memory has ended before its copy")
	}
	close(copies)
	if err := a.wait(t, 3); err != nil {
		t.Fatal(err)
	}
	if write(4, missing[:8]); a.running(4) {
		t.Error("a write of a page that came into memory is left to a worker")
	}
}
