// SPDX-License-Identifier: MIT

package memory

import (
	"testing"
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/futex"
)

func TestWakeReachesAParkedThread(t *testing.T) {
	var w ParkWord
	w.Wake() // nobody there: nothing happens
	parked := make(chan error, 1)
	go func() {
		w.Waiters.Add(1)
		defer w.Waiters.Add(^uint32(0))
		for w.Value.Load() == 0 {
			if err := futex.Wait(w.Addr(), 0, 10*time.Second, false); err != nil && w.Value.Load() == 0 {
				parked <- err
				return
			}
		}
		parked <- nil
	}()
	for w.Waiters.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	w.Value.Store(7)
	w.Wake()
	select {
	case err := <-parked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the thread slept on")
	}
}

func TestNUMANode(t *testing.T) {
	b, err := sys.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Free(b) }()
	b[0] = 1
	if n := NUMANode(sys.AddrOf(b)); n < -1 || n > 1<<10 {
		t.Errorf("node %d", n)
	}
	if n := NUMANode(1); n != -1 {
		t.Errorf("an address that is not mapped lies on node %d", n)
	}
}
