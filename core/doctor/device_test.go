// SPDX-License-Identifier: MIT

package doctor

import (
	"strings"
	"testing"

	"mori/core/provider/verbs/nics"
	"mori/core/topology"
	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

// TestDoctorOnDevices: every port that is up is used, with an address, and every device has its
// limits.
func TestDoctorOnDevices(t *testing.T) {
	verbstest.Need(t)
	r := Examine()
	v := r.Verbs
	devices, err := verbs.Devices()
	if err != nil || !v.Library.OK || len(v.Devices) != len(devices) || len(v.Near) == 0 || len(r.Host.RDMA) != len(v.Ports) {
		t.Fatalf("%+v, and the library has %v, %v", v, devices, err)
	}
	for _, d := range v.Devices {
		if d.MaxMR == 0 || d.QPs == 0 || d.QPWR == 0 || d.SGE == 0 || d.CQE == 0 || d.MRs == 0 {
			t.Errorf("%+v", d)
		}
	}
	used := 0
	for _, p := range v.Ports {
		if p.Unused != "" {
			continue
		}
		used++
		if p.State != "ACTIVE" || p.Index == nil || p.MTU < 256 || p.Gbps <= 0 || p.Link == "Ethernet" && p.GID == "" {
			t.Errorf("%+v", p)
		}
	}
	if used == 0 {
		t.Errorf("none of %+v is used", v.Ports)
	}
	taken := map[string]int{}
	for _, g := range v.GIDs {
		if g.Taken {
			taken[g.NIC]++
		}
	}
	for nic, n := range taken {
		if n != 1 {
			t.Errorf("%d addresses of %s are taken: %+v", n, nic, v.GIDs)
		}
	}
}

// TestDoctorAdvisesByDevices: other hosts are reached by RDMA where a port can be used, and by TCP
// where none can, with the reason.
func TestDoctorAdvisesByDevices(t *testing.T) {
	verbstest.NeedEmulated(t)
	if far := Examine().Paths[1]; far.Path != "verbs/rdma" || len(far.Reasons) != 0 {
		t.Errorf("with two devices: %+v", far)
	}
	verbstest.PortDown(t, 0)
	verbstest.PortDown(t, 1)
	if far := Examine().Paths[1]; far.Path != "tcp" || !strings.Contains(strings.Join(far.Reasons, ""), "emu1: port is down") {
		t.Errorf("with both down: %+v", far)
	}
}

func TestDoctorTakesTheRoutedAddress(t *testing.T) {
	verbstest.NeedEmulated(t)
	want := map[string]string{"emu0": "1: 198.18.0.10", "emu1": "1: 198.18.1.10"}
	for _, p := range Examine().Verbs.Ports {
		if p.GID != want[p.NIC] || p.NUMA != -1 || p.BusID != "" {
			t.Errorf("%+v", p)
		}
	}
	t.Setenv("MORI_IB_GID_INDEX", "2")
	for _, p := range Examine().Verbs.Ports {
		if !strings.HasPrefix(p.GID, "2: ") {
			t.Errorf("%+v", p)
		}
	}
	t.Setenv("MORI_IB_GID_INDEX", "9")
	v := Examine().Verbs
	if len(v.Near) != 0 || !strings.Contains(v.Ports[0].Unused, "GID index 9") || !strings.Contains(problemsText(v), "MORI_IB_GID_INDEX") {
		t.Errorf("%+v", v)
	}
}

// TestDoctorSeesTrouble: what happens to a device, and what is said of it.
func TestDoctorSeesTrouble(t *testing.T) {
	verbstest.NeedEmulated(t)
	for _, c := range []struct {
		what         string
		harm         func(t *testing.T)
		unused, says string // of emu0
	}{
		{"a port that is down", func(t *testing.T) { verbstest.PortDown(t, 0) }, "port is down", ""},
		{"all ports down", func(t *testing.T) { verbstest.PortDown(t, 0); verbstest.PortDown(t, 1) }, "port is down", "port emu1 is down: "},
		{"devices that may not be opened", func(t *testing.T) { verbstest.Fail(t, "ibv_open_device=13") }, `open device "emu0": permission denied`, "permission denied: allow it"},
		{"a list without it", func(t *testing.T) { t.Setenv("MORI_RDMA_DEVICES", "emu1") }, "MORI_RDMA_DEVICES=emu1", ""},
		{"a list with what is not there", func(t *testing.T) { t.Setenv("MORI_RDMA_DEVICES", "emu7") },
			"MORI_RDMA_DEVICES names emu7, but this host has emu0, emu1: unknown RDMA device or port", "names emu7, but this host has emu0, emu1"},
		{"no IPv4 address", func(t *testing.T) { verbstest.DropGID(t, 0, 1) }, "", ""},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "-"), func(t *testing.T) {
			c.harm(t)
			v := Examine().Verbs
			for _, p := range v.Ports {
				if p.NIC == "emu0" && (p.Unused != c.unused || p.Unused == "" && p.Index == nil) {
					t.Errorf("%+v, want %q", p, c.unused)
				}
			}
			if got := problemsText(v); !strings.Contains(got, c.says) || c.says == "" && got != "" || len(v.Problems) > 2 {
				t.Errorf("%q, want %q", got, c.says)
			}
		})
	}
}

func problemsText(v nics.Report) string {
	var all []string
	for _, p := range v.Problems {
		all = append(all, p.What+": "+p.Remedy)
	}
	return strings.Join(all, "\n")
}

// TestDoctorPutsBackWhatItOpened: a device that is looked at stays as it was.
func TestDoctorPutsBackWhatItOpened(t *testing.T) {
	verbstest.NeedEmulated(t)
	before := verbstest.Objects(t)
	nics.Look(&topology.Host{})
	if after := verbstest.Objects(t); after != before {
		t.Errorf("%d objects of the library, and %d before", after, before)
	}
}
