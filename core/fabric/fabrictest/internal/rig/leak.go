// SPDX-License-Identifier: MIT

package rig

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Main is fabrictest.Main.
func Main(m *testing.M) int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		return m.Run() // the fuzzing engine has goroutines of its own
	}
	startPoller()
	goroutines, files := goroutineIDs(), openFiles()
	code := m.Run()
	if code != 0 {
		return code
	}
	left := leftovers(goroutines, files)
	for _, what := range left {
		fmt.Fprintf(os.Stderr, "left after all tests: %s\n\n", what)
	}
	return min(len(left), 1)
}

// startPoller makes the runtime open the descriptors of its poller, which stay.
var startPoller = sync.OnceFunc(func() {
	if r, w, err := os.Pipe(); err == nil {
		_ = errors.Join(r.Close(), w.Close())
	}
})

// checkLeaks makes the case fail if goroutines or descriptors are left after all its other
// cleanups.
func checkLeaks(tb testing.TB) {
	startPoller()
	goroutines, files := goroutineIDs(), openFiles()
	tb.Cleanup(func() {
		if tb.Failed() || tb.Skipped() {
			return
		}
		for _, what := range leftovers(goroutines, files) {
			tb.Errorf("left: %s", what)
		}
	})
}

// leftovers are the goroutines and descriptors that were not there before, and do not go.
func leftovers(goroutines map[string]bool, files []string) (left []string) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left = leftGoroutines(goroutines)
		for _, f := range openFiles() {
			if !slices.Contains(files, f) {
				left = append(left, "descriptor "+f)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// stacks returns each goroutine's stack by its first line's number.
func stacks() map[string]string {
	buf := make([]byte, 8<<20)
	out := make(map[string]string)
	for _, s := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if id, _, ok := strings.Cut(s, " ["); ok {
			out[id] = s
		}
	}
	return out
}

func goroutineIDs() map[string]bool {
	ids := make(map[string]bool)
	for id := range stacks() {
		ids[id] = true
	}
	return ids
}

func leftGoroutines(before map[string]bool) []string {
	var left []string
	for id, s := range stacks() {
		if !before[id] && !strings.Contains(s, "rig.leftovers") {
			left = append(left, s)
		}
	}
	return left
}

// driversOwn are the files that drivers of GPUs open when they like, and keep.
var driversOwn = []string{"/proc/", "/dev/nvidia", "/dev/kfd", "/dev/dri/"}

// openFiles lists descriptors by number and what they are.
func openFiles() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		own := func(prefix string) bool { return strings.HasPrefix(to, prefix) }
		if err == nil && !slices.ContainsFunc(driversOwn, own) {
			files = append(files, e.Name()+" "+to)
		}
	}
	return files
}
