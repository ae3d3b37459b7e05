// SPDX-License-Identifier: MIT

package futex

import (
	"syscall"
	"testing"
	"time"

	"mori/core/internal/sys"
)

func TestFutex(t *testing.T) {
	m, err := sys.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Free(m)
	a := sys.AddrOf(m)
	if err := Wait(a, 1, time.Second, false); err != syscall.EAGAIN {
		t.Fatalf("wait for another value: %v", err)
	}
	if err := Wait(a, 0, time.Millisecond, true); err != syscall.ETIMEDOUT {
		t.Fatalf("wait without a waker: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sys.Load32(a) == 0 {
			_ = Wait(a, 0, time.Second, false)
		}
	}()
	sys.Store32(a, 1)
	if _, err := Wake(a, 1, false); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the waiter did not wake")
	}
}
