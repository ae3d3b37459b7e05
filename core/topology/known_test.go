// SPDX-License-Identifier: MIT

package topology

import (
	"testing"
	"testing/fstest"
)

func TestOlderThan(t *testing.T) {
	for _, c := range []struct {
		version, least string
		want           bool
	}{
		{"5.4.0-100-generic", "5.12", true},
		{"5.12.0", "5.12", false},
		{"5.12-rc1", "5.12", false},
		{"6.8", "5.12", false},
		{"5", "5.12", true},
		{"1.117.5-a-45", "1.117.5", false},
		{"1.117.4-a-60", "1.117.5", true},
		{"x.1", "5.12", false},
	} {
		if got := olderThan(c.version, c.least); got != c.want {
			t.Errorf("%s older than %s: %v", c.version, c.least, got)
		}
	}
}

func TestFirmwareFloor(t *testing.T) {
	const thor, other = 0x1760, 0x16d7
	for _, c := range []struct {
		vendor, part   uint32
		firmware, want string
	}{
		{0x14e4, thor, "235.2.79.0", "235.2.86"},
		{0x14e4, thor, "235.2.86.0", ""},
		{0x14e4, thor, "237.1.100.0", "237.1.137"}, // a branch of its own
		{0x14e4, thor, "237.1.137.0", ""},
		{0x14e4, other, "220.0.0.0", ""}, // nothing is known of it
		{0x1dd8, 0x1002, "1.117.4-a-60", "1.117.5"},
		{0x15b3, 4129, "28.39.1002", ""},
	} {
		if got := FirmwareFloor(c.vendor, c.part, c.firmware); got != c.want {
			t.Errorf("%#x:%#x with %s: %q, want %q", c.vendor, c.part, c.firmware, got, c.want)
		}
	}
}

func TestRDMAModule(t *testing.T) {
	if RDMAModule("mlx5_core") != "mlx5_ib" || RDMAModule("virtio_net") != "" {
		t.Errorf("%q, %q", RDMAModule("mlx5_core"), RDMAModule("virtio_net"))
	}
}

func TestGPUDirect(t *testing.T) {
	gpu := &Host{GPUs: []GPU{{}}}
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const release, nvidia = "proc/sys/kernel/osrelease", "proc/driver/nvidia/version"
	for name, c := range map[string]struct {
		host *Host
		root fstest.MapFS
		want bool
	}{
		"no GPU":                  {&Host{}, fstest.MapFS{"sys/module/nvidia_peermem/x": file("")}, false},
		"a module":                {gpu, fstest.MapFS{"sys/module/nvidia_peermem/x": file("")}, true},
		"nothing is known":        {gpu, fstest.MapFS{}, false},
		"an AMD GPU":              {gpu, fstest.MapFS{release: file("6.8.0\n"), "sys/module/amdgpu/x": file("")}, true},
		"an AMD GPU, old Linux":   {gpu, fstest.MapFS{release: file("5.4.0\n"), "sys/module/amdgpu/x": file("")}, false},
		"the open NVIDIA module":  {gpu, fstest.MapFS{release: file("6.8.0\n"), nvidia: file("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64")}, true},
		"the other NVIDIA module": {gpu, fstest.MapFS{release: file("6.8.0\n"), nvidia: file("NVRM version: NVIDIA UNIX x86_64 Kernel Module")}, false},
	} {
		if got, why := c.host.GPUDirect(c.root); got != c.want || why == "" {
			t.Errorf("%s: %v, %q", name, got, why)
		}
	}
}
