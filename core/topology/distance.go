// SPDX-License-Identifier: MIT

package topology

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Distance is the distance between two devices of a host, in the terms of nvidia-smi topo.
type Distance int

// From near to far; Unknown is last.
const (
	PIX     Distance = iota + 1 // at most one PCIe switch between them
	PXB                         // several PCIe switches, but not the host bridge
	PHB                         // a PCIe host bridge, which is part of a CPU
	NODE                        // several host bridges of one NUMA node
	SYS                         // the link between NUMA nodes
	Unknown                     // the host does not report it
)

func (d Distance) String() string {
	if d < PIX || d > SYS {
		return "?"
	}
	return [...]string{"PIX", "PXB", "PHB", "NODE", "SYS"}[d-PIX]
}

// MarshalText is String, for JSON.
func (d Distance) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// A spot is a device's location: its path on the PCI bus, "pci0000:15/0000:15:01.0/0000:16:00.0"
// from the root to the device, and its NUMA node.
type spot struct {
	path string
	numa int
}

// between compares two spots of this host.
func (h *Host) between(a, b spot) Distance {
	if a.path == "" || b.path == "" {
		return h.nodes(a, b)
	}
	x, y := strings.Split(a.path, "/"), strings.Split(b.path, "/")
	shared := 0
	for shared < min(len(x), len(y)) && x[shared] == y[shared] {
		shared++
	}
	// After the last common bridge comes the device, and before it the port of its switch, if it
	// has one. More than these two means another switch.
	rest := max(len(x), len(y)) - shared
	switch {
	case shared == 0:
		return h.nodes(a, b)
	case shared == 1:
		return PHB
	case rest <= 2:
		return PIX
	}
	return PXB
}

// nodes compares NUMA nodes only. On a host with one node all devices are there, whatever they
// report.
func (h *Host) nodes(a, b spot) Distance {
	switch {
	case len(h.NUMA) == 1:
		return NODE
	case a.numa < 0 || b.numa < 0:
		return Unknown
	case a.numa == b.numa:
		return NODE
	}
	return SYS
}

// gpuDistance returns the NIC's distance from a GPU, Unknown if this host does not have that GPU.
func (h *Host) gpuDistance(gpu string, nic RDMA) Distance {
	at := h.gpuIndex(gpu)
	if at < 0 {
		return Unknown
	}
	return h.between(h.GPUs[at].spot(), nic.spot())
}

func (h *Host) gpuIndex(bus string) int {
	bus = BusID(bus)
	return slices.IndexFunc(h.GPUs, func(g GPU) bool { return g.BusID == bus })
}

func (g GPU) spot() spot  { return spot{g.Path, g.NUMA} }
func (r RDMA) spot() spot { return spot{r.Path, r.NUMA} }

// BusID formats a PCI address as the kernel does: "00000000:1B:00.0", as NVIDIA's tools write it,
// becomes "0000:1b:00.0".
func BusID(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if domain, rest, ok := strings.Cut(s, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		return domain[4:] + ":" + rest
	}
	return s
}

var (
	pciRoot   = regexp.MustCompile(`^pci[0-9a-f]{4,}:[0-9a-f]{2}$`)
	pciDevice = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$`)
)

// pciPath extracts the PCI part of a sysfs path: roots and devices, "" without one. Virtual
// machines add buses before it, drivers add parts after it.
func pciPath(link string) string {
	var parts []string
	for _, part := range strings.Split(path.Clean(link), "/") {
		if pciRoot.MatchString(part) || pciDevice.MatchString(part) {
			parts = append(parts, part)
		}
	}
	if len(parts) < 2 {
		return ""
	}
	return strings.Join(parts, "/")
}

// lastDevice returns the address of the device at the end of a path.
func lastDevice(pci string) string {
	if pci == "" {
		return ""
	}
	return path.Base(pci)
}
