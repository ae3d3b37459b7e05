// SPDX-License-Identifier: MIT

package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"mori/core/provider/verbs/nics"
	"mori/core/topology"
	"mori/native/gpu/gputest"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) {
	verbstest.Start()
	gputest.Main(m)
}

func TestDoctorNamesAPathForEachPeer(t *testing.T) {
	r := Examine()
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
	r := Examine()
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
	usable := slices.ContainsFunc(r.Verbs.Ports, func(p nics.PortRow) bool { return p.Unused == "" })
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
	r := Examine()
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
		for _, p := range gpuPaths(&c.host, absent) {
			if p.Path != "" || len(p.Reasons) != 1 || !strings.Contains(p.Reasons[0], c.says) {
				t.Errorf("%+v: %+v, want %q", c.host, p, c.says)
			}
		}
	}
}
