// SPDX-License-Identifier: MIT

package topology

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Host is a machine, as the kernel's file systems describe it.
type Host struct {
	CPUModel string   `json:"cpu_model"`
	CPUs     int      `json:"cpus"` // logical, online
	NUMA     []Node   `json:"numa"`
	NICs     []NIC    `json:"nics"`
	RDMA     []RDMA   `json:"rdma"`
	GPUs     []GPU    `json:"gpus"`
	Drivers  []string `json:"gpu_drivers"` // "nvidia", "amdgpu"
}

// A Node is a NUMA node.
type Node struct {
	ID   int    `json:"id"`
	CPUs string `json:"cpus"` // the kernel's list format: "0-15,32-47"
	MiB  int    `json:"mib"`
}

// A NIC is a network interface.
type NIC struct {
	Name  string `json:"name"`
	State string `json:"state"` // "up", "down", "unknown"
	Mbps  int    `json:"mbps"`  // 0 = unknown
	NUMA  int    `json:"numa"`  // -1 = unknown
}

// A GPU is a display-class or accelerator PCI device of NVIDIA or AMD.
type GPU struct {
	BusID  string `json:"bus_id"`
	Vendor string `json:"vendor"`
	NUMA   int    `json:"numa"`
	Path   string `json:"-"` // its path on the PCI bus, as in RDMA
}

// Scan reads the tree below root, which contains proc and sys. It skips what it cannot read.
func Scan(root fs.FS) *Host {
	h := &Host{CPUs: countList(text(root, "sys/devices/system/cpu/online")), NUMA: []Node{}, NICs: []NIC{}, RDMA: []RDMA{}, GPUs: []GPU{}, Drivers: []string{}}
	for _, line := range strings.Split(text(root, "proc/cpuinfo"), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			h.CPUModel = strings.TrimSpace(value)
			break
		}
	}
	h.scanNUMA(root)
	h.scanNICs(root)
	h.scanRDMA(root)
	h.scanGPUs(root)
	return h
}

func (h *Host) scanNUMA(root fs.FS) {
	for _, dir := range list(root, "sys/devices/system/node") {
		id, err := strconv.Atoi(strings.TrimPrefix(dir, "node"))
		if err != nil || !strings.HasPrefix(dir, "node") {
			continue
		}
		at := path.Join("sys/devices/system/node", dir)
		n := Node{ID: id, CPUs: text(root, at+"/cpulist")}
		for _, line := range strings.Split(text(root, at+"/meminfo"), "\n") {
			if f := strings.Fields(line); len(f) >= 4 && f[2] == "MemTotal:" {
				kib, _ := strconv.Atoi(f[3])
				n.MiB = kib >> 10
			}
		}
		h.NUMA = append(h.NUMA, n)
	}
	slices.SortFunc(h.NUMA, func(a, b Node) int { return a.ID - b.ID })
}

func (h *Host) scanNICs(root fs.FS) {
	for _, name := range list(root, netClass) {
		at := path.Join(netClass, name)
		h.NICs = append(h.NICs, NIC{Name: name, State: text(root, at+"/operstate"), Mbps: max(0, number(root, at+"/speed", 0)), NUMA: number(root, at+"/device/numa_node", -1)})
	}
}

// PCI vendor ids, and the classes of GPUs: display controllers (0x03) and processing accelerators
// (0x12). From the PCI code and id assignment specification.
var gpuVendors = map[string]string{"0x10de": "NVIDIA", "0x1002": "AMD"}

func (h *Host) scanGPUs(root fs.FS) {
	for _, dev := range list(root, pciBus) {
		at := path.Join(pciBus, dev)
		class := text(root, at+"/class")
		vendor := gpuVendors[text(root, at+"/vendor")]
		if vendor != "" && (strings.HasPrefix(class, "0x03") || strings.HasPrefix(class, "0x12")) {
			g := GPU{BusID: strings.ToLower(dev), Vendor: vendor, NUMA: number(root, at+"/numa_node", -1)}
			g.Path, _ = whereIs(root, at)
			h.GPUs = append(h.GPUs, g)
		}
	}
	for _, mod := range []string{"nvidia", "amdgpu"} {
		if _, err := fs.Stat(root, "sys/module/"+mod); err == nil {
			h.Drivers = append(h.Drivers, mod)
		}
	}
}

// countList counts the members of a kernel list such as "0-3,8".
func countList(s string) int {
	n := 0
	for _, part := range strings.Split(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(hi); err != nil {
				continue
			}
		}
		n += max(0, b-a+1)
	}
	return n
}

func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func number(root fs.FS, name string, def int) int {
	n, err := strconv.Atoi(text(root, name))
	if err != nil {
		return def
	}
	return n
}

func list(root fs.FS, dir string) []string {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
