// SPDX-License-Identifier: MIT

package fabrictest

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkLeaks makes the case fail if goroutines or descriptors are left after all its other cleanups.
func checkLeaks(tb testing.TB) {
	goroutines, files := goroutineIDs(), openFiles()
	tb.Cleanup(func() {
		if tb.Failed() || tb.Skipped() {
			return
		}
		var left []string
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if left = leftGoroutines(goroutines); len(left) == 0 {
				break
			}
		}
		if len(left) > 0 {
			tb.Errorf("%d goroutines are left:\n\n%s", len(left), strings.Join(left, "\n\n"))
		}
		for _, f := range openFiles() {
			if !slices.Contains(files, f) {
				tb.Errorf("a descriptor is left: %s", f)
			}
		}
	})
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
		if !before[id] && !strings.Contains(s, "fabrictest.checkLeaks") && !strings.Contains(s, "fabrictest.stacks") {
			left = append(left, s)
		}
	}
	return left
}

// openFiles lists descriptors by number and what they are, but for those of the runtime's poller, which stay.
func openFiles() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" && !strings.HasPrefix(to, "/proc/") {
			files = append(files, e.Name()+" "+to)
		}
	}
	return files
}
