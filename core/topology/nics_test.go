// SPDX-License-Identifier: MIT

package topology

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"mori/core/topology/topologytest"
)

// noPin is the choice of somebody who sets nothing.
var noPin = Choice{HostNIC: -1}

func hostOf(t *testing.T, name string) *Host {
	t.Helper()
	return Scan(topologytest.Tree(t, name))
}

// TestNICsOfKnownHosts: the first NIC of each GPU, on real machine layouts.
func TestNICsOfKnownHosts(t *testing.T) {
	for _, c := range []struct {
		host     string
		distance Distance
		gpus     string // the first NIC of each GPU in order of its address
		nodes    string // the NICs of host memory on nodes 0 and 1, all that are as near
	}{
		{"dgx-h100", PXB, "mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11", "mlx5_0 mlx5_3 mlx5_4 mlx5_5|mlx5_6 mlx5_9 mlx5_10 mlx5_11"},
		{"dgx-a100", PXB, "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_6 mlx5_7 mlx5_8 mlx5_9", "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4|mlx5_6 mlx5_7 mlx5_8 mlx5_9 mlx5_10"},
		{"hgx-4nic", PIX, "mlx5_0 mlx5_0 mlx5_1 mlx5_1 mlx5_2 mlx5_2 mlx5_3 mlx5_3", "mlx5_0 mlx5_1|mlx5_2 mlx5_3"},
		{"mi300x", PIX, "rdma0 rdma1 rdma2 rdma3 rdma4 rdma5 rdma6 rdma7", "rdma0 rdma1 rdma2 rdma3|rdma4 rdma5 rdma6 rdma7"},
		{"cloud-flat", PHB, "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7", "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7"},
		{"cloud-vmbus", NODE, "mlx5_ib0 mlx5_ib1 mlx5_ib2 mlx5_ib3 mlx5_ib4 mlx5_ib5 mlx5_ib6 mlx5_ib7", "mlx5_ib0 mlx5_ib1 mlx5_ib2 mlx5_ib3|mlx5_ib4 mlx5_ib5 mlx5_ib6 mlx5_ib7"},
		{"bonded-roce", NODE, "mlx5_bond_0 mlx5_bond_0 mlx5_bond_1 mlx5_bond_1", "mlx5_bond_0|mlx5_bond_1"},
		{"soft-roce", 0, "", "rxe0 rxe1"},
	} {
		h := hostOf(t, c.host)
		var got []string
		for _, g := range h.GPUs {
			p := pick(t, h, AtGPU(g.BusID), 1, noPin)[0]
			got = append(got, p.Device)
			if p.Distance != c.distance || !strings.Contains(p.Why, p.Distance.String()+" from GPU "+g.BusID) {
				t.Errorf("%s: GPU %s is %s from %s: %s", c.host, g.BusID, p.Distance, p.Device, p.Why)
			}
		}
		if s := strings.Join(got, " "); s != c.gpus {
			t.Errorf("%s: %s, want %s", c.host, s, c.gpus)
		}
		for node, want := range strings.Split(c.nodes, "|") {
			all := pick(t, h, OnNode(node), 99, noPin)
			if s := names(all[:nearest(all)]); s != want {
				t.Errorf("%s: host memory on node %d: %s, want %s", c.host, node, s, want)
			}
		}
	}
}

func TestOneNICForAll(t *testing.T) {
	h := hostOf(t, "one-nic")
	for i, want := range []Distance{PHB, PHB, SYS, SYS} {
		p := pick(t, h, AtGPU(h.GPUs[i].BusID), 2, noPin)
		if len(p) != 1 || p[0].Name() != "mlx4_0:2" || p[0].Distance != want || !strings.HasSuffix(p[0].Why, "shared by 4 GPUs") {
			t.Errorf("GPU %d: %+v", i, p)
		}
	}
}

func TestNoNIC(t *testing.T) {
	h := hostOf(t, "laptop")
	if _, err := h.NICsFor(OnNode(0), 1, noPin); !errors.Is(err, ErrNoNIC) {
		t.Errorf("a host without RDMA devices: %v", err)
	}
	h = hostOf(t, "one-nic")
	h.RDMA[1].State = "INIT"
	if _, err := h.NICsFor(OnNode(0), 1, noPin); !errors.Is(err, ErrNoNIC) || !strings.Contains(err.Error(), "mlx4_0: port is down; mlx4_0:2: port is init") {
		t.Errorf("a host whose ports are down: %v", err)
	}
	for _, want := range []int{0, -1} {
		if _, err := h.NICsFor(OnNode(0), want, noPin); err == nil || errors.Is(err, ErrNoNIC) {
			t.Errorf("%d NICs: %v", want, err)
		}
	}
}

func TestSeveralNICs(t *testing.T) {
	h := hostOf(t, "dgx-h100")
	for _, c := range []struct {
		near Place
		want int
		is   string
	}{
		{AtGPU(h.GPUs[0].BusID), 3, "mlx5_0 mlx5_3 mlx5_4"},
		{AtGPU(h.GPUs[1].BusID), 3, "mlx5_3 mlx5_4 mlx5_5"},
		{AtGPU(h.GPUs[3].BusID), 3, "mlx5_5 mlx5_0 mlx5_3"},
		{AtGPU("00000000:9D:00.0"), 2, "mlx5_6 mlx5_9"},
		{AtGPU("0000:01:00.0"), 2, "mlx5_0 mlx5_3"}, // is not in this host
		{OnNode(1), 2, "mlx5_6 mlx5_9"},
		{OnNode(-1), 2, "mlx5_0 mlx5_3"},
	} {
		if got := names(pick(t, h, c.near, c.want, noPin)); got != c.is {
			t.Errorf("%d for %+v: %s, want %s", c.want, c.near, got, c.is)
		}
	}
	if p := pick(t, h, AtGPU("0000:01:00.0"), 1, noPin)[0]; p.Distance != Unknown || !strings.Contains(p.Why, "0000:01:00.0") {
		t.Errorf("a GPU that is not there: %+v", p)
	}
}

// TestNICsAreSharedOut: with as many NICs as GPUs, each is the first, and the second, and the third
// of one GPU of its socket.
func TestNICsAreSharedOut(t *testing.T) {
	for _, name := range []string{"dgx-h100", "mi300x", "cloud-flat", "cloud-vmbus"} {
		h := hostOf(t, name)
		for rank := range 3 {
			count := map[string]int{}
			for _, g := range h.GPUs {
				count[pick(t, h, AtGPU(g.BusID), 3, noPin)[rank].Device]++
			}
			if len(count) != len(h.GPUs) {
				t.Errorf("%s: NIC %d of the GPUs is %v", name, rank+1, count)
			}
		}
	}
}

func TestTurns(t *testing.T) {
	h := hostOf(t, "mi300x")
	var got []string
	for turn := -1; turn < 5; turn++ {
		o := noPin
		o.Turn = turn
		got = append(got, pick(t, h, OnNode(1), 1, o)[0].Device)
	}
	if want := "rdma7 rdma4 rdma5 rdma6 rdma7 rdma4"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestSettings(t *testing.T) {
	h := hostOf(t, "mi300x")
	dgx := hostOf(t, "dgx-h100")
	gpu := AtGPU(h.GPUs[2].BusID)
	for _, c := range []struct {
		what string
		near Place
		o    Choice
		is   string
		says string
	}{
		{"a list is used in its order", OnNode(0), Choice{HostNIC: -1, Devices: "rdma3, rdma1"}, "rdma3 rdma1", "node 0"},
		{"a list may name slow ones", OnNode(1), Choice{HostNIC: -1, Devices: "bnxt_re8,rdma7"}, "bnxt_re8 rdma7", "node 1"},
		{"all but some", gpu, Choice{HostNIC: -1, Devices: "^rdma2,rdma3"}, "rdma0 rdma1 rdma4", "NODE"},
		{"a list may name both link layers", AtGPU("0000:1b:00.0"), Choice{HostNIC: -1, Devices: "mlx5_1,mlx5_0"}, "mlx5_0 mlx5_1", "PXB"},
		{"a port", gpu, Choice{HostNIC: -1, Devices: "rdma2:1"}, "rdma2", "PIX"},
		{"a pin for host memory", OnNode(0), Choice{HostNIC: 7}, "rdma5", "MORI_IO_RDMA_NIC_IDX=7"},
		{"a pin counts what the list leaves", OnNode(0), Choice{HostNIC: 0, Devices: "rdma6"}, "rdma6", "=0"},
		{"a pin is not for GPUs", gpu, Choice{HostNIC: 5}, "rdma2 rdma3 rdma0", "PIX"},
		{"static order", gpu, Choice{HostNIC: -1, Static: true, Devices: "^rdma0,bnxt_re8,bnxt_re9"}, "rdma3 rdma4 rdma5", "MORI_DISABLE_TOPO"},
		{"static order knows no slow ones", OnNode(1), Choice{HostNIC: -1, Static: true, Turn: 2}, "rdma1 rdma2 rdma3", "MORI_DISABLE_TOPO"},
	} {
		on := h
		if strings.HasPrefix(c.o.Devices, "mlx5") {
			on = dgx
		}
		got := pick(t, on, c.near, 3, c.o)
		if names(got) != c.is || !strings.Contains(got[0].Why, c.says) {
			t.Errorf("%s: %s, want %s; because %q", c.what, names(got), c.is, got[0].Why)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	h := hostOf(t, "soft-roce")
	for devices, says := range map[string]string{
		"mlx5_0":      "names mlx5_0, but this host has rxe0, rxe1",
		"rxe0,eth0":   "names eth0,",
		"^rxe7":       "names rxe7,",
		"rxe0:2":      "names rxe0:2,",
		"rxe0:x":      "names rxe0:x,",
		"^":           "^ without a name",
		"^rxe0,^rxe1": "^ is allowed once",
		"rxe0,^rxe1":  "^ is allowed once",
	} {
		_, err := h.NICsFor(OnNode(0), 1, Choice{HostNIC: -1, Devices: devices})
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "MORI_RDMA_DEVICES") || errors.Is(err, ErrNoNIC) {
			t.Errorf("%q: %v, want %q", devices, err, says)
		}
	}
	if _, err := h.NICsFor(OnNode(0), 1, Choice{HostNIC: 2}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "rxe0, rxe1, with indices from 0 to 1") {
		t.Errorf("a pin outside: %v", err)
	}
	if _, err := h.NICsFor(OnNode(0), 1, Choice{HostNIC: -1, Devices: "^rxe0,rxe1"}); !errors.Is(err, ErrNoNIC) || !strings.Contains(err.Error(), "rxe1: MORI_RDMA_DEVICES=") {
		t.Errorf("all left out: %v", err)
	}
	for _, empty := range []string{"", " ", ",", " , "} {
		if got := names(pick(t, h, OnNode(0), 9, Choice{HostNIC: -1, Devices: empty})); got != "rxe0 rxe1" {
			t.Errorf("%q: %s", empty, got)
		}
	}
}

// TestRailsSayWhyNot: every port is used or has a reason, and an index stays when another port goes
// down.
func TestRailsSayWhyNot(t *testing.T) {
	for host, want := range map[string]string{
		"dgx-h100":    "mlx5_1: Ethernet, and the ports with link layer InfiniBand have more total speed|mlx5_2: port is down|mlx5_7: Ethernet|mlx5_8: port is down",
		"hgx-4nic":    "mlx5_4: Ethernet",
		"mi300x":      "bnxt_re8: 100 Gbit/s, while another port has 400|bnxt_re9: port is down",
		"bonded-roce": "irdma0: node type RNIC",
		"one-nic":     "mlx4_0: port is down",
		"soft-roce":   "",
	} {
		h := hostOf(t, host)
		rails, unused, err := h.Rails(noPin)
		if err != nil || len(rails)+len(unused) != len(h.RDMA) {
			t.Errorf("%s: %d used, %d not, of %d; %v", host, len(rails), len(unused), len(h.RDMA), err)
		}
		for i, why := range strings.Split(want, "|") {
			if why != "" && (i >= len(unused) || !strings.HasPrefix(unused[i].Name()+": "+unused[i].Why, why)) {
				t.Errorf("%s: %+v, want %s", host, unused, why)
			}
		}
	}
	h := hostOf(t, "mi300x")
	before, _, _ := h.Rails(noPin)
	h.RDMA[before[0].Index].State = "DOWN"
	after, _, _ := h.Rails(noPin)
	if len(after) != len(before)-1 || after[0].Device != before[1].Device || after[0].Index != before[1].Index {
		t.Errorf("%+v, and without its port %+v", before[0], after[0])
	}
}

func TestMerge(t *testing.T) {
	h := hostOf(t, "mi300x")
	h.Merge([]RDMA{
		{Device: "rdma10", Port: 1, State: "ACTIVE", Link: "Ethernet"},
		{Device: "rdma0", Port: 1, State: "ACTIVE", Link: "Ethernet", Fault: "it does not open"},
		{Device: "rdma1", Port: 1, State: "DOWN", Link: "Ethernet", Gbps: 200},
		{Device: "rdma2", Port: 1, State: "ACTIVE", Link: "Ethernet"},
	})
	var got []string
	for _, p := range h.RDMA {
		got = append(got, fmt.Sprintf("%s %s %g %s %d %s", p.Device, p.State, p.Gbps, p.BusID, p.NUMA, p.NetDev))
	}
	want := []string{"rdma0 ACTIVE 400 0000:06:00.0 0 benic1p1", "rdma1 DOWN 200 0000:1c:00.0 0 benic2p1", "rdma2 ACTIVE 400 0000:32:00.0 0 benic3p1", "rdma10 ACTIVE 0  -1 "}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, unused, _ := h.Rails(noPin); len(unused) != 2 || unused[0].Name()+": "+unused[0].Why != "rdma0: it does not open" {
		t.Errorf("%+v", unused)
	}
	if p := pick(t, h, AtGPU(h.GPUs[7].BusID), 1, noPin)[0]; p.Device != "rdma2" || p.Distance != SYS {
		t.Errorf("%+v", p)
	}
}

func pick(t *testing.T, h *Host, near Place, want int, o Choice) []Pick {
	t.Helper()
	p, err := h.NICsFor(near, want, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func names(picks []Pick) string {
	var all []string
	for _, p := range picks {
		all = append(all, p.Name())
	}
	return strings.Join(all, " ")
}
