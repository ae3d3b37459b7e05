// SPDX-License-Identifier: MIT

package topology

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	rdmaClass = "sys/class/infiniband"
	netClass  = "sys/class/net"
	pciBus    = "sys/bus/pci/devices"
)

// RDMA is a port of an RDMA device.
type RDMA struct {
	Device string  `json:"device"`
	Port   int     `json:"port"`
	State  string  `json:"state"`  // "ACTIVE", "DOWN"
	Link   string  `json:"link"`   // "InfiniBand", "Ethernet"
	Gbps   float64 `json:"gbps"`   // 0 = unknown
	NetDev string  `json:"netdev"` // its network interface, "" if it has none here
	BusID  string  `json:"bus_id"` // "" if it is not a PCI device
	NUMA   int     `json:"numa"`   // -1 = unknown
	Node   string  `json:"node"`   // "CA"; "RNIC" is iWARP; "" = unknown
	Fault  string  `json:"-"`      // why it cannot be used, regardless of its state; for Merge
	Path   string  `json:"-"`      // its path on the PCI bus, from the root: "pci0000:15/0000:15:01.0/0000:18:00.0"
}

// Name returns the port's name for MORI_RDMA_DEVICES: the device, and the port number if it is not
// 1.
func (r RDMA) Name() string {
	if r.Port <= 1 {
		return r.Device
	}
	return fmt.Sprintf("%s:%d", r.Device, r.Port)
}

// Up reports whether the port is active.
func (r RDMA) Up() bool {
	return strings.Contains(r.State, "ACTIVE") && !strings.Contains(r.State, "DEFER")
}

// Active reports whether any RDMA port is up.
func (h *Host) Active() bool { return slices.ContainsFunc(h.RDMA, RDMA.Up) }

func (h *Host) scanRDMA(root fs.FS) {
	for _, dev := range list(root, rdmaClass) {
		at := path.Join(rdmaClass, dev)
		one := RDMA{Device: dev, Node: afterColon(text(root, at+"/node_type"))}
		one.Path, one.NUMA = whereIs(root, at)
		one.NetDev = text(root, at+"/parent")
		one.BusID = lastDevice(one.Path)
		for _, port := range list(root, at+"/ports") {
			var err error
			if one.Port, err = strconv.Atoi(port); err == nil {
				h.RDMA = append(h.RDMA, portOf(root, at, one))
			}
		}
	}
	sortPorts(h.RDMA)
}

// portOf reads the attributes that differ between the ports of a device.
func portOf(root fs.FS, at string, p RDMA) RDMA {
	port := fmt.Sprintf("%s/ports/%d", at, p.Port)
	p.State, p.Link = afterColon(text(root, port+"/state")), text(root, port+"/link_layer")
	if rate, _, ok := strings.Cut(text(root, port+"/rate"), " "); ok { // "400 Gb/sec (4X NDR)"
		p.Gbps, _ = strconv.ParseFloat(rate, 64)
	}
	if dev := netDevOf(root, at, port, p.Port); dev != "" {
		p.NetDev = dev
	}
	if p.Path == "" && p.NetDev != "" { // soft-RoCE and soft-iWARP are where their interface is
		p.Path, p.NUMA = whereIs(root, path.Join(netClass, p.NetDev))
		p.BusID = lastDevice(p.Path)
	}
	return p
}

// gidsLookedAt limits the GIDs whose interface is read. The first GID that is set has it; reading
// an unset one fails.
const gidsLookedAt = 8

// netDevOf finds the interface of a port: that of its GIDs on Ethernet, else the PCI device's
// interface with the port's number.
func netDevOf(root fs.FS, at, port string, number int) string {
	for gid := range gidsLookedAt {
		if dev := text(root, fmt.Sprintf("%s/gid_attrs/ndevs/%d", port, gid)); dev != "" {
			return dev
		}
	}
	devs := list(root, at+"/device/net")
	for _, dev := range devs {
		if n, err := strconv.Atoi(text(root, at+"/device/net/"+dev+"/dev_port")); err == nil && n == number-1 {
			return dev
		}
	}
	if len(devs) == 1 {
		return devs[0]
	}
	return ""
}

// whereIs finds the location of the target of a link in /sys/class or /sys/bus.
func whereIs(root fs.FS, name string) (pci string, numa int) {
	if links, ok := root.(interface{ ReadLink(string) (string, error) }); ok {
		if to, err := links.ReadLink(name); err == nil {
			pci = pciPath(to)
		}
	}
	if numa = number(root, name+"/device/numa_node", -1); numa < 0 && pci != "" {
		numa = number(root, path.Join(pciBus, lastDevice(pci), "numa_node"), -1)
	}
	return pci, numa
}

// afterColon returns the word of a value such as "4: ACTIVE".
func afterColon(s string) string {
	if _, word, ok := strings.Cut(s, ": "); ok {
		return word
	}
	return s
}

// sortPorts sorts names numerically: mlx5_10 comes after mlx5_9.
func sortPorts(ports []RDMA) {
	slices.SortStableFunc(ports, func(a, b RDMA) int {
		if c := compareNames(a.Device, b.Device); c != 0 {
			return c
		}
		return a.Port - b.Port
	})
}

func compareNames(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na == 0 || nb == 0 {
			if a[0] != b[0] {
				return int(a[0]) - int(b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		if x != y {
			return strings.Compare(x, y)
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

// digits counts the digits at the start of s.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// Merge replaces sysfs's RDMA ports by those that a library knows. Ports that sysfs has too keep
// their location, others have none. Ports that the library does not know are dropped.
func (h *Host) Merge(told []RDMA) {
	known := h.RDMA
	h.RDMA = slices.Clone(told)
	for i := range h.RDMA {
		p := &h.RDMA[i]
		at := slices.IndexFunc(known, func(k RDMA) bool { return k.Device == p.Device && k.Port == p.Port })
		if at < 0 {
			p.NUMA, p.BusID, p.Path = -1, "", ""
			continue
		}
		k := known[at]
		p.NUMA, p.BusID, p.Path = k.NUMA, k.BusID, k.Path
		if p.Node == "" {
			p.Node = k.Node
		}
		if p.NetDev == "" {
			p.NetDev = k.NetDev
		}
		if p.Gbps == 0 {
			p.Gbps = k.Gbps
		}
	}
	sortPorts(h.RDMA)
}
