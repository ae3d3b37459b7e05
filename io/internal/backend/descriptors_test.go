// SPDX-License-Identifier: MIT

package backend

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"mori/core"
	"mori/core/limits"
	"mori/io/internal/region"
)

// exhaust opens all file descriptors of the process except leave, under a lower limit, until the
// test ends.
func exhaust(t *testing.T, leave int) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 256, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	var taken []int
	release := func(n int) {
		for range n {
			_ = syscall.Close(taken[len(taken)-1])
			taken = taken[:len(taken)-1]
		}
	}
	for {
		fd, err := syscall.Dup(int(null.Fd()))
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	release(leave)
	t.Cleanup(func() {
		release(len(taken))
		_ = null.Close()
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

// Creating a backend fails if too few descriptors are free, and works again when enough are.
func TestABackendWithoutDescriptorsIsAnError(t *testing.T) {
	for left := range 8 {
		for _, kind := range []Kind{RDMA, TCP} {
			e := newTable(t, nil)
			t.Run("", func(t *testing.T) {
				exhaust(t, left)
				if err := e.Create(kind, DefaultConfig()); !errors.Is(err, limits.ErrShort) {
					t.Errorf("%v with %d descriptors: %v, want %v", kind, left, err, limits.ErrShort)
				}
			})
			if err := e.Create(kind, DefaultConfig()); err != nil {
				t.Errorf("%v, %d descriptors having been left, once there are enough: %v", kind, left, err)
			}
			closeAll(t, e)
		}
	}
}

// If descriptors run out while a backend opens, it opens completely or leaves nothing behind.
func TestDescriptorsThatRunOutLeaveNoHalfABackend(t *testing.T) {
	family := core.Family{Host: []string{"shm", "tcp"}, GPU: []string{"shm", "tcp"}}
	for left := range 8 {
		var regions region.Table
		e := newTable(t, &regions)
		host(t, &regions, 64)
		var err error
		before := descriptors(t) // earlier tests may still close some of them
		t.Run("", func(t *testing.T) {
			exhaust(t, left)
			err = openWhole(e, family)
		})
		if err == nil && len(e.transports.open) != 2 {
			t.Errorf("%d descriptors: the backend has %d of 2 transports", left, len(e.transports.open))
		}
		if err != nil && (!limits.IsShort(err) || len(opened(t, before)) != 0 || e.control != nil || len(e.transports.open) != 0) {
			t.Errorf("%d descriptors: %v; it left %v", left, err, opened(t, before))
		}
		if (err == nil) != (left >= 3) {
			t.Errorf("%d descriptors: %v", left, err)
		}
		if err != nil {
			if err := e.Create(RDMA, DefaultConfig()); err != nil {
				t.Errorf("once there are descriptors: %v", err)
			}
		}
		closeAll(t, e)
		if left := opened(t, before); len(left) != 0 {
			t.Errorf("after close: %v", left)
		}
	}
}

// openWhole is Create without the check of limits.
func openWhole(e *Table, f core.Family) error {
	e.mu.Lock()
	err := e.add(RDMA, DefaultConfig(), f)
	return errors.Join(err, e.discard())
}

// descriptors returns the open descriptors of this process: each number with the kernel's name of
// its file.
func descriptors(t *testing.T) map[string]bool {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for _, fd := range all {
		if file, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil { // not that of the folder itself
			open[fd.Name()+" "+file] = true
		}
	}
	return open
}

// opened returns the descriptors that were opened since before.
func opened(t *testing.T, before map[string]bool) (left []string) {
	t.Helper()
	for fd := range descriptors(t) {
		if !before[fd] {
			left = append(left, fd)
		}
	}
	return left
}
