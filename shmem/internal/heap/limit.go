// SPDX-License-Identifier: MIT

package heap

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// MemoryLimit returns the memory limit of this process and its source: the machine, or a cgroup. It
// returns 0 if the limit is unknown.
func MemoryLimit(root fs.FS) (n uint64, who string) {
	if total := memTotal(root); total > 0 {
		n, who = total, "the machine's memory"
	}
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":") // hierarchy:controllers:path
		controllers, dir, ok := strings.Cut(rest, ":")
		base, file := "sys/fs/cgroup", "memory.max"
		if controllers == "memory" {
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if controllers != "" {
			ok = false
		}
		if !ok {
			continue
		}
		for at := path.Join(base, dir); len(at) >= len(base); at = path.Dir(at) { // a parent's limit applies, too
			if limit := number(root, path.Join(at, file)); limit > 0 && (n == 0 || limit < n) {
				n, who = limit, "/"+path.Join(at, file)
			}
		}
	}
	return n, who
}

// memTotal returns the machine's memory, 0 if unknown.
func memTotal(root fs.FS) uint64 { return memField(root, "MemTotal:") }

// MemAvailable returns how much memory the machine has available.
func MemAvailable(root fs.FS) uint64 { return memField(root, "MemAvailable:") }

// memField returns a number of /proc/meminfo, in bytes.
func memField(root fs.FS, name string) uint64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name && f[2] == "kB" {
			kib, _ := strconv.ParseUint(f[1], 10, 54)
			return kib << 10
		}
	}
	return 0
}

// number reads a file with one number, and returns 0 for other content ("max").
func number(root fs.FS, name string) uint64 {
	text, _ := fs.ReadFile(root, name)
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}
