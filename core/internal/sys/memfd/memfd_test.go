// SPDX-License-Identifier: MIT

package memfd

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

func TestMapRefusesWhatCouldShrink(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(fd, 4096); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("unsealed: %v", err)
	}
	if _, err := Map(fd, 8192); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("too short: %v", err)
	}
}

func TestMemfdIsShared(t *testing.T) {
	fd, err := New("test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.CloseFD(fd)
	a, err := Map(fd, 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Free(a)
	b, err := Map(fd, 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Free(b)
	a[5000] = 42
	if b[5000] != 42 {
		t.Fatal("the second mapping does not see the first one's byte")
	}
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Fatal("the memfd could be shrunk")
	}
}
