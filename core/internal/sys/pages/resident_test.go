// SPDX-License-Identifier: MIT

package pages

import (
	"testing"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

func TestResident(t *testing.T) {
	page := int(pageSize)
	b, err := sys.Alloc(64 * page)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Free(b) }()
	for i := range 40 {
		b[i*page] = 1
	}
	pages := new(Map)
	at := func(from, n int) []sys.Iovec {
		return []sys.Iovec{{Addr: sys.AddrOf(b) + uint64(from), Len: uint64(n)}}
	}
	for _, c := range []struct {
		from, n int
		want    bool
	}{{0, 1, true}, {page - 1, 2, true}, {5, 31 * page, true}, {0, 33 * page, false}, {39 * page, page + 1, false}, {50 * page, 1, false}, {50 * page, 0, true}} {
		if got := Resident(at(c.from, c.n), pages); got != c.want {
			t.Errorf("%d bytes from %d: %v", c.n, c.from, got)
		}
	}
	if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if Resident(at(0, 1), pages) {
		t.Error("a page that was taken away is resident")
	}
}
