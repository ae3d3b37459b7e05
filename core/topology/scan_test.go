// SPDX-License-Identifier: MIT

package topology

import (
	"os"
	"testing"
	"testing/fstest"
)

func TestScan(t *testing.T) {
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"sys/devices/system/cpu/online":                "0-3,8\n",
		"proc/cpuinfo":                                 "processor\t: 0\nmodel name\t: Example 9000\n",
		"sys/devices/system/node/node1/cpulist":        "2-3\n",
		"sys/devices/system/node/node1/meminfo":        "Node 1 MemTotal:        2097152 kB\n",
		"sys/devices/system/node/possible":             "0-1",
		"sys/class/net/eth0/operstate":                 "up\n",
		"sys/class/net/eth0/speed":                     "100000\n",
		"sys/class/net/lo/speed":                       "-1\n",
		"sys/class/infiniband/mlx5_0/ports/1/state":    "4: ACTIVE\n",
		"sys/class/infiniband/mlx5_0/device/numa_node": "1\n",
		"sys/bus/pci/devices/0000:0A:00.0/class":       "0x030200\n",
		"sys/bus/pci/devices/0000:0A:00.0/vendor":      "0x10de\n",
		"sys/bus/pci/devices/0000:0b:00.0/class":       "0x020000\n",
		"sys/bus/pci/devices/0000:0b:00.0/vendor":      "0x10de\n",
		"sys/bus/pci/devices/0000:0c:00.0/class":       "0x120000\n",
		"sys/bus/pci/devices/0000:0c:00.0/vendor":      "0x1002\n",
		"sys/module/amdgpu/version":                    "6",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	h := Scan(root)
	if h.CPUs != 5 || h.CPUModel != "Example 9000" {
		t.Errorf("CPUs %d %q", h.CPUs, h.CPUModel)
	}
	if len(h.NUMA) != 1 || h.NUMA[0] != (Node{1, "2-3", 2048}) {
		t.Errorf("NUMA %+v", h.NUMA)
	}
	if len(h.NICs) != 2 || h.NICs[0] != (NIC{"eth0", "up", 100000, -1}) || h.NICs[1].Mbps != 0 {
		t.Errorf("NICs %+v", h.NICs)
	}
	if !h.Active() || h.RDMA[0].NUMA != 1 || h.RDMA[0].State != "ACTIVE" {
		t.Errorf("RDMA %+v", h.RDMA)
	}
	if len(h.GPUs) != 2 || h.GPUs[0].BusID != "0000:0a:00.0" || h.GPUs[1].Vendor != "AMD" || len(h.Drivers) != 1 {
		t.Errorf("GPUs %+v, drivers %v", h.GPUs, h.Drivers)
	}
}

func TestScanThisHost(t *testing.T) {
	if h := Scan(os.DirFS("/")); h.CPUs < 1 {
		t.Errorf("%d CPUs found on the machine that runs this test", h.CPUs)
	}
}

func TestScanNothing(t *testing.T) {
	if h := Scan(fstest.MapFS{}); h.CPUs != 0 || h.Active() || h.GPUs == nil {
		t.Errorf("an empty tree gave %+v", h)
	}
}
