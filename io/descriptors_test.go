// SPDX-License-Identifier: MIT

package io

import (
	"os"
	"syscall"
	"testing"
)

// exhaust takes all descriptors of the process but some, under a lower limit, until the test ends.
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

// A backend for which there are too few descriptors is an error, and works when there are enough again.
func TestABackendWithoutDescriptorsIsAnError(t *testing.T) {
	for left := range 8 {
		for _, kind := range []BackendType{BackendTCP} { // the emulated library of RDMA devices aborts without descriptors
			e, err := NewEngine("a", EngineConfig{})
			if err != nil {
				t.Fatal(err)
			}
			t.Run("", func(t *testing.T) {
				exhaust(t, left)
				if err := e.CreateBackend(kind, nil); err == nil && left < 2 {
					t.Errorf("%v with %d descriptors: no error", kind, left)
				}
			})
			if err := e.CreateBackend(kind, nil); err != nil {
				t.Errorf("%v, %d descriptors having been left, once there are enough: %v", kind, left, err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Without a descriptor to read the identity of the host there is no engine: it would have another one than its neighbours.
func TestAnEngineWithoutDescriptorsIsAnError(t *testing.T) {
	t.Run("", func(t *testing.T) {
		exhaust(t, 0)
		if e, err := NewEngine("a", EngineConfig{}); err == nil {
			t.Errorf("an engine with node id %q", e.Desc().NodeID)
		}
	})
	e, err := NewEngine("a", EngineConfig{})
	if err != nil || e.Desc().NodeID == e.Desc().Hostname {
		t.Errorf("once there are descriptors: %v, node id %q", err, e.Desc().NodeID)
	}
}
