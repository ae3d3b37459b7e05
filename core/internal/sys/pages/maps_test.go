// SPDX-License-Identifier: MIT

package pages

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mori/core/decode/decodetest"
	"mori/core/internal/sys"
)

func TestCheck(t *testing.T) {
	const page = 4096
	m, err := sys.Alloc(8 * page)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Free(m) }()
	at := sys.AddrOf(m)
	for _, c := range []struct{ off, n uint64 }{{0, 8 * page}, {1, 1}, {page - 1, 2}, {8*page - 1, 1}, {3, 0}} {
		if err := Check(at+c.off, c.n); err != nil {
			t.Errorf("%d bytes at %d: %v", c.n, c.off, err)
		}
	}
	for _, c := range []struct {
		prot int
		want string
	}{{unix.PROT_NONE, "without read permission"}, {unix.PROT_READ, "read-only"}} {
		if err := unix.Mprotect(m[4*page:5*page], c.prot); err != nil {
			t.Fatal(err)
		}
		bad := fmt.Sprintf("%#x", at+4*page)
		if err := Check(at+100, 6*page); !errors.Is(err, syscall.EFAULT) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), bad) {
			t.Errorf("got %v, want %q and page %s", err, c.want, bad)
		}
		if err := Check(at, 4*page); err != nil {
			t.Errorf("the pages before: %v", err)
		}
	}
	for _, addr := range []uint64{16, 0xffff888000000000, 1<<64 - page} {
		if err := Check(addr, 8); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("%#x: %v", addr, err)
		}
	}
}

// TestCheckMaps holds the two ways of Check against each other.
func TestCheckMaps(t *testing.T) {
	m, err := sys.Alloc(8 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Free(m) }()
	if err := unix.Mprotect(m[3*4096:4*4096], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	for from := range uint64(8) {
		for n := range 8 - from {
			f, err := os.Open("/proc/self/maps")
			if err != nil {
				t.Skip(err)
			}
			at, size := sys.AddrOf(m)+from*4096+7, n*4096+9
			slow, fast := checkMaps(f, at, size), Check(at, size)
			_ = f.Close()
			if fmt.Sprint(slow) != fmt.Sprint(fast) || (slow == nil) != (from > 3 || from+n < 3) {
				t.Errorf("pages %d to %d: %v and %v", from, from+n, slow, fast)
			}
		}
	}
}

func FuzzCheckMaps(f *testing.F) {
	f.Add("1000-2000 rw-p 0 0 0\n2000-3000 r--p 0 0 0 /a b\n", uint64(0x1800), uint64(0x900))
	f.Fuzz(func(t *testing.T, text string, addr, n uint64) {
		if n == 0 || addr+n < addr {
			return
		}
		decodetest.Bounded(t, len(text), func() { _ = checkMaps(strings.NewReader(text), addr, n) })
	})
}

func BenchmarkCheck(b *testing.B) {
	m, err := sys.Alloc(64 << 20)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = sys.Free(m) }()
	for b.Loop() {
		if err := Check(sys.AddrOf(m), 64<<20); err != nil {
			b.Fatal(err)
		}
	}
}
