// SPDX-License-Identifier: MIT

package heap

import (
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	mem := file("MemTotal:       24000 kB\nMemFree: 1 kB\n")
	for name, c := range map[string]struct {
		root fstest.MapFS
		want uint64
		who  string
	}{
		"no file says":      {fstest.MapFS{}, 0, ""},
		"the machine":       {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("0::/\n")}, 24000 << 10, "the machine's memory"},
		"a cgroup":          {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("4096\n")}, 4096, "/sys/fs/cgroup/a/b/memory.max"},
		"its parent":        {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("8192")}, 8192, "/sys/fs/cgroup/a/memory.max"},
		"a container's own": {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("12288")}, 12288, "/sys/fs/cgroup/memory.max"},
		"version 1":         {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("5:cpu:/x\n4:memory:/x\n"), "sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("16384")}, 16384, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"},
		"version 1, none":   {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("4:memory:/x\n"), "sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("9223372036854771712")}, 24000 << 10, "the machine's memory"},
	} {
		if n, who := MemoryLimit(c.root); n != c.want || who != c.who {
			t.Errorf("%s: %d by %q, want %d by %q", name, n, who, c.want, c.who)
		}
	}
	if n := MemAvailable(fstest.MapFS{"proc/meminfo": file("MemTotal:       24000 kB\nMemAvailable:   2 kB\n")}); n != 2048 {
		t.Errorf("%d bytes are available, want 2048", n)
	}
}
