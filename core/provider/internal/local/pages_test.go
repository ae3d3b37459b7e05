// SPDX-License-Identifier: MIT

package local

import (
	"os"
	"syscall"
	"testing"

	"mori/core/internal/sys"
)

// untouched returns n bytes that have no page in memory yet.
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
	pages := OpenPages(os.Getpid())
	if pages == nil {
		t.Fatal("this process may not see its own pages")
	}
	if err := syscall.Madvise(b[page:2*page], syscall.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	scratch := make([]byte, 4*PageEntry)
	for _, c := range []struct {
		at, n int
		want  bool
	}{
		{0, 1, true}, {0, page, true}, {0, 0, true}, {7 * page, 0, true},
		{0, page + 1, false}, {page, 1, false}, {2 * page, page, true}, {2*page + 5, page - 5, true},
		{2*page + 5, page, false}, {3 * page, 8, false}, {4*page - 1, 2, false}, {4 * page, page, true},
	} {
		list := []sys.Iovec{{Addr: sys.AddrOf(b) + uint64(c.at), Len: uint64(c.n)}}
		if got := pages.Present(list, scratch); got != c.want {
			t.Errorf("%d bytes at %d: present %v, want %v", c.n, c.at, got, c.want)
		}
		// One segment that is not in memory is enough.
		both := append([]sys.Iovec{{Addr: sys.AddrOf(b), Len: 8}}, list...)
		if got := pages.Present(both, scratch); got != c.want {
			t.Errorf("8 bytes, and %d at %d: present %v, want %v", c.n, c.at, got, c.want)
		}
	}
	if pages.Present([]sys.Iovec{{Addr: sys.AddrOf(b), Len: 1}}, nil) {
		t.Error("present without room to read an entry")
	}
	if (*Pages)(nil).Present(nil, scratch) {
		t.Error("present without pages")
	}
	pages.Close()
	if pages.Present([]sys.Iovec{{Addr: sys.AddrOf(b), Len: 1}}, scratch) {
		t.Error("present after they were closed")
	}
}
