// SPDX-License-Identifier: MIT

package topology

import (
	"encoding/json"
	"testing"
)

func TestDistances(t *testing.T) {
	two := &Host{NUMA: make([]Node, 2)}
	for _, c := range []struct {
		what string
		a, b spot
		want Distance
	}{
		{"functions of one card", spot{"pci0000:15/0000:15:01.0/0000:16:00.0", 0}, spot{"pci0000:15/0000:15:01.0/0000:16:00.1", 0}, PIX},
		{"two ports of a switch", spot{"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", 0}, spot{"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0", 0}, PIX},
		{"a switch behind a switch", spot{"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", 0}, spot{"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0/0000:1a:00.0/0000:1b:00.0", 0}, PXB},
		{"two root ports", spot{"pci0000:15/0000:15:01.0/0000:16:00.0", 0}, spot{"pci0000:15/0000:15:02.0/0000:1a:00.0", 0}, PHB},
		{"two devices on the root bus", spot{"pci0000:00/0000:00:04.0", -1}, spot{"pci0000:00/0000:00:05.0", -1}, PHB},
		{"two host bridges", spot{"pci0000:15/0000:15:01.0/0000:16:00.0", 1}, spot{"pci0000:3d/0000:3d:01.0/0000:3e:00.0", 1}, NODE},
		{"two sockets", spot{"pci0000:15/0000:15:01.0/0000:16:00.0", 0}, spot{"pci0000:9d/0000:9d:01.0/0000:9e:00.0", 1}, SYS},
		{"nodes that are not known", spot{"pci0000:15/0000:15:01.0/0000:16:00.0", -1}, spot{"pci0000:9d/0000:9d:01.0/0000:9e:00.0", 1}, Unknown},
		{"memory of the node", spot{"", 1}, spot{"pci0000:9d/0000:9d:01.0/0000:9e:00.0", 1}, NODE},
		{"nothing known", spot{"", -1}, spot{"", -1}, Unknown},
	} {
		if got, back := two.between(c.a, c.b), two.between(c.b, c.a); got != c.want || back != got {
			t.Errorf("%s: %s, and %s the other way, want %s", c.what, got, back, c.want)
		}
	}
	one := &Host{NUMA: make([]Node, 1)}
	if got := one.between(spot{"", -1}, spot{"", -1}); got != NODE {
		t.Errorf("on a host with one node: %s", got)
	}
}

func TestDistanceText(t *testing.T) {
	got, err := json.Marshal([]Distance{PIX, PXB, PHB, NODE, SYS, Unknown, 0})
	if err != nil || string(got) != `["PIX","PXB","PHB","NODE","SYS","?","?"]` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestPCIPath(t *testing.T) {
	for link, want := range map[string]string{
		"../../devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0":                                          "pci0000:15/0000:15:01.0/0000:18:00.0",
		"../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/00000041-0001/pci0101:00/0101:00:00.0/infiniband/m": "pci0101:00/0101:00:00.0",
		"../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0":                                 "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0",
		"../../devices/virtual/infiniband/rxe0":                                                                         "",
		"":                                                                                                              "",
	} {
		if got := pciPath(link); got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
	}
}

func TestBusID(t *testing.T) {
	for in, want := range map[string]string{"00000000:1B:00.0": "0000:1b:00.0", "0000:1b:00.0": "0000:1b:00.0", "00010000:E1:00.0": "00010000:e1:00.0", "": "", "x": "x"} {
		if got := BusID(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCompareNames(t *testing.T) {
	in := []string{"bnxt_re0", "mlx5", "mlx5_0", "mlx5_00", "mlx5_2", "mlx5_02a", "mlx5_10", "mlx5_bond_0", "rxe0"}
	for i, a := range in {
		for j, b := range in {
			if c := compareNames(a, b); c < 0 != (i < j) || c > 0 != (i > j) {
				if !(a == "mlx5_0" && b == "mlx5_00" || a == "mlx5_00" && b == "mlx5_0") { // one number, written in two ways
					t.Errorf("%s and %s: %d", a, b, c)
				}
			}
		}
	}
}
