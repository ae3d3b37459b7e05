// SPDX-License-Identifier: MIT

package rig

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestLeftoversAreSeen(t *testing.T) {
	startPoller()
	goroutines, files := goroutineIDs(), openFiles()
	if left := leftovers(goroutines, files); len(left) != 0 {
		t.Fatalf("nothing was opened: %q", left)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { <-stop }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if left := leftGoroutines(goroutines); len(left) != 1 {
		t.Errorf("one goroutine was started: %q", left)
	}
	if now := openFiles(); len(now) != len(files)+2 {
		t.Errorf("two descriptors were opened: %q, before %q", now, files)
	}
}
