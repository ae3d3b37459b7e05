// SPDX-License-Identifier: MIT

package sys

import "testing"

func TestEvent(t *testing.T) {
	fd, err := Event()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = CloseFD(fd) }()
	for lap := range 2 {
		EventClear(fd) // does not block
		if Readable(fd) {
			t.Fatalf("lap %d: readable before it was set", lap)
		}
		EventSet(fd)
		EventSet(fd)
		if !Readable(fd) {
			t.Fatalf("lap %d: not readable after it was set", lap)
		}
		EventClear(fd)
		if Readable(fd) {
			t.Fatalf("lap %d: readable after it was cleared", lap)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		EventSet(fd)
		EventClear(fd)
	}); n != 0 {
		t.Errorf("%v allocations", n)
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
