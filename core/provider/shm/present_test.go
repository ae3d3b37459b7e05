// SPDX-License-Identifier: MIT

package shm

import (
	"syscall"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/conn"
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

// TestSmallOpsWithMissingPagesGoToTheWorkers copies a small op at once if all its pages are in
// memory, and leaves it to a worker if one is missing.
func TestSmallOpsWithMissingPagesGoToTheWorkers(t *testing.T) {
	a, b := newPair(t, wayCMA)
	grantRegion(t, b, 1, 4096, allRights)
	here, _ := memory(t, 4096)
	write := func(ticket conn.Ticket, from []byte) {
		if !a.path.RMA(ticket, rmaOp(fabric.OpWrite, from, 0), regionKey(1)) {
			t.Fatal("the write is handed back to the stream")
		}
	}
	write(1, here[:8]) // waits for the grant
	if err := a.wait(t, 1); err != nil {
		t.Fatal(err)
	}
	if write(2, here[:8]); a.running(2) {
		t.Error("a write of 8 bytes that are in memory is left to a worker")
	}
	missing, copies := untouched(t, 4096), make(chan struct{})
	copyNow := a.path.copies.vm.write
	a.path.copies.vm.write = func(pid int, local, remote []sys.Iovec) (int, error) {
		<-copies
		return copyNow(pid, local, remote)
	}
	if write(3, missing[:8]); !a.running(3) { // if it copied inline, it would wait for copies forever
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
