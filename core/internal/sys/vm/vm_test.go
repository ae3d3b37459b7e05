// SPDX-License-Identifier: MIT

package vm

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

func iovecs(bufs ...[]byte) []sys.Iovec {
	var iov []sys.Iovec
	for _, b := range bufs {
		iov = append(iov, sys.Iovec{Addr: sys.AddrOf(b), Len: uint64(len(b))})
	}
	return iov
}

func TestCopyIsExact(t *testing.T) {
	const n = 3 * 4096
	src, err := sys.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Free(src)
	dst, err := sys.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Free(dst)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	cut := func(b []byte, k int) (iov []sys.Iovec) {
		for len(b) > 0 {
			c := min(k, len(b))
			iov = append(iov, iovecs(b[:c])...)
			b = b[c:]
		}
		return iov
	}
	for _, sizes := range [][2]int{{n, n}, {5, n}, {n, 5}, {3, 7}, {4096, 1000}} {
		for name, copy := range map[string]func(int, []sys.Iovec, []sys.Iovec) (int, error){"read": Read, "write": Write} {
			clear(dst)
			local, remote := cut(dst, sizes[0]), cut(src, sizes[1])
			if name == "write" {
				local, remote = cut(src, sizes[0]), cut(dst, sizes[1])
			}
			if m, err := copy(os.Getpid(), local, remote); m != n || err != nil || !bytes.Equal(src, dst) {
				t.Fatalf("%s of %v: %d bytes, %v", name, sizes, m, err)
			}
		}
	}
}

func TestCopyStopsAtAHole(t *testing.T) {
	m, err := sys.Alloc(4 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Free(m)
	if err := unix.Mprotect(m[2*4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 4*4096)
	moved, err := Read(os.Getpid(), iovecs(dst), iovecs(m[:100], m[100:]))
	if moved != 2*4096 || err != syscall.EFAULT {
		t.Fatalf("moved %d, %v", moved, err)
	}
	if _, err := Read(1<<22+1, iovecs(dst), iovecs(m[:8])); err != syscall.ESRCH {
		t.Fatalf("from a process that is not there: %v", err)
	}
}

func TestPtraceScope(t *testing.T) {
	scope, err := PtraceScope()
	if err != nil || scope < PtraceClassic || scope > PtraceNone {
		t.Fatalf("scope %d: %v", scope, err)
	}
	if err := AllowPtrace(); err != nil && !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	src, dst := make([]byte, 64), make([]byte, 64)
	local, remote := iovecs(dst), iovecs(src)
	pid := os.Getpid()
	if n := testing.AllocsPerRun(100, func() {
		_, _ = Read(pid, local, remote)
	}); n != 0 {
		t.Errorf("Read allocates %v", n)
	}
}

// A kernel that is asked about another process of this user answers as Allowed says.
func TestAllowedHasAReason(t *testing.T) {
	ok, reason := Allowed()
	if reason == "" {
		t.Error("no reason")
	}
	scope, err := PtraceScope()
	if err == nil && ok && scope == PtraceNone {
		t.Errorf("allowed with ptrace scope %d: %s", scope, reason)
	}
}
