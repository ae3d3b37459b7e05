// SPDX-License-Identifier: MIT

package core

import (
	"strings"
	"testing"

	"mori/core/topology"
)

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

// TestDoctorGPUs: there are GPUs, or a reason why not; every one has a name and its place on the bus.
func TestDoctorGPUs(t *testing.T) {
	r := Doctor()
	if (len(r.GPUs) == 0) != (r.NoGPU != "") || r.GPUs == nil {
		t.Fatalf("%d GPUs, and %q", len(r.GPUs), r.NoGPU)
	}
	if len(r.GPUs) == 0 && (!strings.Contains(r.NoGPU, "no CUDA device: ") && !strings.Contains(r.NoGPU, "CUDA driver")) {
		t.Error(r.NoGPU)
	}
	for _, g := range r.GPUs {
		if g.Name == "" || g.BusID == "" || g.MiB == 0 {
			t.Errorf("%+v", g)
		}
	}
}

func TestWhatIsMissing(t *testing.T) {
	h := &topology.Host{RDMA: []topology.RDMA{{State: "DOWN"}}, GPUs: []topology.GPU{{}}}
	if s := noRDMA(h); !strings.Contains(s, "all down") {
		t.Error(s)
	}
	if s := noGPU(h); !strings.Contains(s, "no GPU driver") {
		t.Error(s)
	}
}
