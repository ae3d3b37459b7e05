// SPDX-License-Identifier: MIT

package sys

import (
	"bytes"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBytesSeesTheSameMemory(t *testing.T) {
	b := []byte("hello, address")
	got := Bytes(AddrOf(b), len(b))
	got[0] = 'H'
	if string(b) != "Hello, address" {
		t.Fatalf("after writing through the address: %q", b)
	}
	if Bytes(0, 0) != nil {
		t.Fatal("no bytes at address 0 should be nil")
	}
	runtime.KeepAlive(b)
}

func TestWords(t *testing.T) {
	m, err := Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(m)
	a := AddrOf(m)
	Store32(a, 7)
	if old := Swap32(a, 9); old != 7 || Load32(a) != 9 {
		t.Fatalf("swap returned %d and left %d", old, Load32(a))
	}
	Store64(a+8, 1<<40)
	if Load64(a+8) != 1<<40 {
		t.Fatalf("got %d", Load64(a+8))
	}
}

func TestCompareAndSwap(t *testing.T) {
	m, err := Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Free(m) }()
	a := AddrOf(m)
	if CompareAndSwap32(a, 1, 2) || !CompareAndSwap32(a, 0, 2) || Load32(a) != 2 || Load32(a+4) != 0 {
		t.Errorf("32 bits: got %x", m[:8])
	}
	if CompareAndSwap64(a+8, 1, 1<<40) || !CompareAndSwap64(a+8, 0, 1<<40) || Load64(a+8) != 1<<40 {
		t.Errorf("64 bits: got %x", m[8:16])
	}
}

func TestAdvance(t *testing.T) {
	tests := []struct {
		name string
		n    uint64
		want []Iovec
	}{
		{"nothing", 0, []Iovec{{100, 10}, {0, 0}, {200, 20}}},
		{"inside the first", 4, []Iovec{{104, 6}, {0, 0}, {200, 20}}},
		{"to the end of the first skips the empty one", 10, []Iovec{{200, 20}}},
		{"inside the last", 29, []Iovec{{219, 1}}},
		{"everything", 30, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Advance([]Iovec{{100, 10}, {0, 0}, {200, 20}}, tt.n)
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Fatalf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func iovecs(bufs ...[]byte) []Iovec {
	var iov []Iovec
	for _, b := range bufs {
		iov = append(iov, Iovec{AddrOf(b), uint64(len(b))})
	}
	return iov
}

func TestCopyStopsAtAHole(t *testing.T) {
	m, err := Alloc(3 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(m)
	for i := range m {
		m[i] = byte(i * 3)
	}
	dst := make([]byte, 4096)
	if n, err := Copy(iovecs(dst[:10], dst[10:]), iovecs(m[:4000], m[4000:4096])); n != 4096 || err != nil || !bytes.Equal(dst, m[:4096]) {
		t.Fatalf("copied %d: %v", n, err)
	}
	if err := unix.Mprotect(m[2*4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if n, err := Copy(iovecs(make([]byte, 3*4096)), iovecs(m[:4096], m[4096:])); n != 4096 || err != syscall.EFAULT {
		t.Fatalf("into a hole: %d, %v", n, err)
	}
	if n, err := Copy(iovecs(dst), []Iovec{{Addr: 16, Len: 8}}); n != 0 || err != syscall.EFAULT {
		t.Fatalf("from the first page: %d, %v", n, err)
	}
}

func TestGuard(t *testing.T) {
	hole, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(hole)
	if err := Guard(func() {}); err != nil {
		t.Error(err)
	}
	for _, at := range []uint64{AddrOf(hole), 16} {
		if err := Guard(func() { Store32(at, 7) }); err != syscall.EFAULT {
			t.Errorf("%#x: %v", at, err)
		}
	}
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("a panic became %v", r)
		}
	}()
	_ = Guard(func() { panic("other") })
}
