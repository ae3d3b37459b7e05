// SPDX-License-Identifier: MIT

package nics

import (
	"fmt"
	"os"

	"mori/core/topology"
	"mori/native/verbs"
)

// A Report lists this host's RDMA hardware and software, how mori would use it, and the problems.
type Report struct {
	Library   Check     `json:"library"` // libibverbs
	Ports     []PortRow `json:"ports"`
	GIDs      []GIDRow  `json:"gids"`
	Devices   []Limits  `json:"devices"`
	Near      []NearRow `json:"near"` // which NICs for which memory
	MemLock   Check     `json:"memlock"`
	GPUDirect Check     `json:"gpudirect"`
	Problems  []Problem `json:"problems"`
}

// A PortRow is a port and how mori would use it.
type PortRow struct {
	Index  *int    `json:"index"` // its number in MORI_IO_RDMA_NIC_IDX, if it is used
	NIC    string  `json:"nic"`
	State  string  `json:"state"`
	Link   string  `json:"link"`
	Gbps   float64 `json:"gbps"`
	MTU    int     `json:"mtu"` // 0 = not known
	NetDev string  `json:"netdev"`
	BusID  string  `json:"bus_id"`
	NUMA   int     `json:"numa"`
	GID    string  `json:"gid"` // the one that peers would use
	Unused string  `json:"unused"`
}

// A GIDRow is an address of a port.
type GIDRow struct {
	NIC    string `json:"nic"`
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type"`
	NetDev string `json:"netdev"`
	Taken  bool   `json:"taken"`
}

// Limits are the device limits that determine how transfers are split.
type Limits struct {
	Device   string `json:"device"`
	Firmware string `json:"firmware"`
	MaxMR    uint64 `json:"max_mr_mib"` // of one registration; larger ones are split
	MRs      int    `json:"mrs"`
	QPs      int    `json:"qps"`
	QPWR     int    `json:"qp_wr"`
	SGE      int    `json:"sge"`
	CQE      int    `json:"cqe"`
	Reads    int    `json:"reads"` // pending at a queue pair
	Atomics  string `json:"atomics"`
}

// A NearRow is a memory with its NICs; transfers over a single NIC use the first.
type NearRow struct {
	Memory    string           `json:"memory"`
	Takes     string           `json:"takes"`
	Why       string           `json:"why"`
	Distances []NICAndDistance `json:"distances"`
}

// NICAndDistance is an entry of the table of NICs and memories.
type NICAndDistance struct {
	NIC      string            `json:"nic"`
	Distance topology.Distance `json:"distance"`
}

// A Check is a boolean with its reason.
type Check struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason"`
}

// A Problem is a failure or a reduced performance, with a remedy.
type Problem struct {
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Look opens each RDMA device and closes it again. It creates nothing on any device. It updates the
// ports of h with the library's report.
func Look(h *topology.Host) Report {
	s := sight{host: h, root: os.DirFS("/"), library: verbs.Load(), access: mayUse, locked: lockedMemory()}
	if s.library == nil {
		s.devices, s.library = lookAtDevices()
	}
	return s.report()
}

// report combines the results. It updates the host's ports with the library's report.
func (s *sight) report() Report {
	v := Report{Library: Check{true, "libibverbs.so.1 is loaded"}, Ports: []PortRow{}, GIDs: []GIDRow{}, Devices: []Limits{}, Near: []NearRow{}}
	if s.library != nil {
		v.Library = Check{false, s.library.Error()}
	} else {
		s.host.Merge(s.reported())
	}
	choice, wrong := Choice()
	rails, unused, err := s.host.Rails(choice)
	if err != nil {
		for _, p := range s.host.RDMA {
			unused = append(unused, topology.Unused{RDMA: p, Why: err.Error()})
		}
	}
	v.Ports = s.portRows(rails, unused)
	for _, d := range s.devices {
		v.Devices = append(v.Devices, limitsOf(d))
		v.GIDs = append(v.GIDs, gidRows(d)...)
	}
	v.Near = nearRows(s.host, choice)
	v.MemLock = s.locked.check()
	v.GPUDirect = s.gpuDirect()
	v.Problems = s.problems(rails, wrong, err)
	return v
}

func (s *sight) portRows(rails []topology.Rail, unused []topology.Unused) []PortRow {
	rows := []PortRow{}
	for _, r := range rails {
		row := s.portRow(r.RDMA)
		if row.Index = &r.Index; s.library != nil {
			row.Index, row.Unused = nil, "libibverbs cannot be used"
		}
		rows = append(rows, row)
	}
	for _, u := range unused {
		row := s.portRow(u.RDMA)
		row.Unused = u.Why
		rows = append(rows, row)
	}
	return rows
}

// portRow adds what only the library knows.
func (s *sight) portRow(p topology.RDMA) PortRow {
	row := PortRow{NIC: p.Name(), State: p.State, Link: p.Link, Gbps: p.Gbps, NetDev: p.NetDev, BusID: p.BusID, NUMA: p.NUMA}
	for _, d := range s.devices {
		for _, seen := range d.ports {
			if d.name != p.Device || seen.number != p.Port {
				continue
			}
			row.MTU = seen.attr.MTU
			if seen.noGID == nil {
				row.GID = fmt.Sprintf("%d: %s", seen.taken.Index, GIDText(seen.taken.GID))
			}
		}
	}
	return row
}

func limitsOf(d seenDevice) Limits {
	a := d.attr
	return Limits{
		Device: d.name, Firmware: a.FirmwareVersion, MaxMR: a.MaxMRSize >> 20, MRs: a.MaxMR, QPs: a.MaxQP, QPWR: a.MaxQPWR,
		SGE: a.MaxSGE, CQE: a.MaxCQE, Reads: a.MaxQPRdAtom, Atomics: a.AtomicCap.String(),
	}
}

func gidRows(d seenDevice) []GIDRow {
	var rows []GIDRow
	for _, p := range d.ports {
		nic := topology.RDMA{Device: d.name, Port: p.number}.Name()
		for _, g := range p.gids {
			rows = append(rows, GIDRow{nic, g.Index, GIDText(g.GID), g.Type.String(), g.NetDev, p.noGID == nil && g.Index == p.taken.Index})
		}
	}
	return rows
}

// nearRows returns the table of memories and NICs: one row for each GPU and each NUMA node. It is
// empty if there is no NIC.
func nearRows(h *topology.Host, o topology.Choice) []NearRow {
	rows := []NearRow{}
	add := func(memory string, near topology.Place) {
		picks, err := h.NICsFor(near, len(h.RDMA)+1, o)
		if err != nil {
			return
		}
		row := NearRow{Memory: memory, Takes: picks[0].Name(), Why: picks[0].Why}
		for _, p := range picks {
			row.Distances = append(row.Distances, NICAndDistance{p.Name(), p.Distance})
		}
		rows = append(rows, row)
	}
	for _, g := range h.GPUs {
		add("GPU "+g.BusID, topology.AtGPU(g.BusID))
	}
	for _, n := range h.NUMA {
		add(fmt.Sprintf("host, node %d", n.ID), topology.OnNode(n.ID))
	}
	return rows
}
