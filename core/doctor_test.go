// SPDX-License-Identifier: MIT

package core

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"mori/core/topology"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) {
	verbstest.Start()
	gputest.Main(m)
}

func TestDoctorNamesAPathForEachPeer(t *testing.T) {
	r := Doctor()
	if r.CMA.Reason == "" || r.Host.CPUs == 0 || len(r.Paths) != 4 {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Paths {
		if p.Peer == "" || p.Path == "" && len(p.Reasons) == 0 {
			t.Errorf("no path and no reason: %+v", p)
		}
	}
	if want := map[bool]string{true: "shm/cma", false: "shm/stream"}[r.CMA.OK]; r.Paths[0].Path != want {
		t.Errorf("same host: %+v, CMA %+v", r.Paths[0], r.CMA)
	}
}

// TestDoctorGPUs: every one has a name and its place on the bus, what it reaches, and kernels or a
// reason.
func TestDoctorGPUs(t *testing.T) {
	gputest.Need(t)
	r := Doctor()
	if len(r.GPUs) == 0 || r.NoGPU != "" {
		t.Fatalf("%d GPUs, and %q", len(r.GPUs), r.NoGPU)
	}
	for _, g := range r.GPUs {
		if g.Name == "" || g.BusID == "" || g.MiB == 0 || !strings.HasSuffix(g.Kernels, ".ptx") && !strings.HasSuffix(g.Kernels, ".hsaco") {
			t.Errorf("%+v", g)
		}
		if !gputest.Real() && !strings.Contains(g.Reach, "by NVLink") {
			t.Errorf("the emulated GPU %d reaches none: %+v", g.Ordinal, g)
		}
	}
	same, other := r.Paths[2], r.Paths[3]
	if same.Path != "p2p/gpu" || same.Reasons == nil {
		t.Errorf("same host: %+v", same)
	}
	usable := slices.ContainsFunc(r.Verbs.Ports, func(p RDMARow) bool { return p.Unused == "" })
	if want := map[bool]string{true: "verbs/rdma", false: "tcp"}[usable]; other.Path != want {
		t.Errorf("other host: %+v, want %s", other, want)
	}
	if pinned := strings.Contains(strings.Join(other.Reasons, "; "), "pinned host memory"); pinned == usable {
		t.Errorf("other host: %+v", other)
	}
}

func TestDoctorWithoutKernels(t *testing.T) {
	gputest.Need(t)
	t.Setenv("MORI_KERNEL_DIR", t.TempDir())
	r := Doctor()
	for _, g := range r.GPUs {
		if g.Kernels != "" {
			t.Errorf("%+v", g)
		}
	}
	same := strings.Join(r.Paths[2].Reasons, "|")
	if r.Paths[2].Path != "p2p/gpu" || !strings.Contains(same, "one by one") || !strings.Contains(same, "io_copy_blocks.") {
		t.Errorf("%+v", r.Paths[2])
	}
}

func TestDoctorWithoutGPU(t *testing.T) {
	absent := errors.New("libcuda.so.1 is not there")
	one := []topology.GPU{{}}
	for _, c := range []struct {
		host topology.Host
		says string
	}{
		{topology.Host{}, "this host has no GPU"},
		{topology.Host{GPUs: one}, "no GPU driver is loaded"},
		{topology.Host{GPUs: one, Drivers: []string{"nvidia"}}, "driver (nvidia), but this process cannot use it: " + absent.Error()},
	} {
		for _, p := range gpuPaths(&c.host, nil, absent) {
			if p.Path != "" || len(p.Reasons) != 1 || !strings.Contains(p.Reasons[0], c.says) {
				t.Errorf("%+v: %+v, want %q", c.host, p, c.says)
			}
		}
	}
}

func TestWeakLinks(t *testing.T) {
	for _, c := range []struct {
		what  string
		links []link
		want  string
	}{
		{"one GPU", nil, ""},
		{"all by NVLink", []link{{0, 1, "NVLink"}, {0, 2, "NVLink"}, {1, 2, "NVLink"}}, ""},
		{"all by PCIe", []link{{0, 1, "PCIe"}, {0, 2, "PCIe"}, {1, 2, "PCIe"}}, "between all GPUs: over PCIe, without NVLink or xGMI"},
		{"two by PCIe", []link{{0, 1, "PCIe"}}, "between GPUs 0-1: over PCIe, without NVLink or xGMI"},
		{"a bridge for two", []link{{0, 1, "NVLink"}, {0, 2, "PCIe"}, {1, 2, ""}},
			"between GPUs 1-2: no peer access, so copies use host memory|between GPUs 0-2: over PCIe, without NVLink or xGMI"},
	} {
		if got := weakLinks(c.links); got == nil || strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q", c.what, got)
		}
	}
}

func TestGroups(t *testing.T) {
	var g groups
	for n, what := range []string{"NVLink", "PCIe", "NVLink", "NVLink"} {
		g.add(what, n)
	}
	got := strings.Join(g.write(func(link, numbers string) string { return numbers + " by " + link }), "; ")
	if got != "0, 2, 3 by NVLink; 1 by PCIe" {
		t.Error(got)
	}
}
