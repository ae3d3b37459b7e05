// SPDX-License-Identifier: MIT

package core

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"mori/core/device"
	"mori/core/internal/sys"
	"mori/core/topology"
)

// A Report tells what is on this host, and which path each kind of peer would get.
type Report struct {
	Host  *topology.Host `json:"host"`
	GPUs  []GPU          `json:"gpus"`
	NoGPU string         `json:"no_gpu"` // why GPUs is empty
	CMA   Check          `json:"cma"`    // process_vm_readv and process_vm_writev between processes of one user
	Paths []Advice       `json:"paths"`
}

// A GPU is a device that a driver answers for; those that this process may not see are in Host only.
type GPU struct {
	API     string `json:"api"` // "CUDA", "HIP"
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	Arch    string `json:"arch"`
	MiB     uint64 `json:"mib"`
	BusID   string `json:"bus_id"`
	UUID    string `json:"uuid"`
	Driver  int    `json:"driver"` // its version, as the vendor numbers it
	NUMA    int    `json:"numa"`   // -1 = not known
	Reach   string `json:"reach"`  // the memory of others that it reaches: "1 by NVLink, 2 by PCIe"
}

// A Check is a yes or no with its reason.
type Check struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason"`
}

// Advice is the path that a kind of peer gets, and why none of the better ones.
type Advice struct {
	Peer    string   `json:"peer"`
	Path    string   `json:"path"` // "" = none
	Reasons []string `json:"reasons"`
}

// Doctor looks at this host. It loads the drivers of GPUs, makes nothing on any device and changes nothing.
func Doctor() Report {
	h := topology.Scan(os.DirFS("/"))
	r := Report{Host: h, CMA: checkCMA()}
	r.GPUs, r.NoGPU = gpus(h)
	rdma, gpu := noRDMA(h), noGPU(h)
	local := Advice{Peer: "same host, host memory", Path: "shm/cma", Reasons: []string{}}
	if !r.CMA.OK {
		local.Path = "shm/stream"
		local.Reasons = append(local.Reasons, "shm/cma: "+r.CMA.Reason)
	}
	r.Paths = []Advice{local,
		{Peer: "other host, host memory", Path: "tcp", Reasons: []string{rdma}},
		{Peer: "same host, GPU memory", Path: "", Reasons: []string{"XGMI: " + gpu}},
		{Peer: "other host, GPU memory", Path: "", Reasons: []string{"FABRIC: " + gpu, rdma}},
	}
	return r
}

// gpus lists what the drivers answer for, or says why that is nothing.
func gpus(h *topology.Host) ([]GPU, string) {
	devices, err := device.Devices()
	if err != nil {
		return []GPU{}, err.Error()
	}
	all := make([]GPU, len(devices))
	for i, d := range devices {
		all[i] = GPU{API: d.API, Ordinal: d.Ordinal, Name: d.Name, Arch: d.Arch, MiB: d.Bytes >> 20, BusID: d.BusID, UUID: d.UUID, Driver: d.Driver, NUMA: -1}
		if at := slices.IndexFunc(h.GPUs, func(g topology.GPU) bool { return g.BusID == d.BusID }); at >= 0 {
			all[i].NUMA = h.GPUs[at].NUMA
		}
		all[i].Reach = reach(d, devices)
	}
	return all, ""
}

// reach names the other devices whose memory d reaches, and the link.
func reach(d *device.Device, all []*device.Device) string {
	var to []string
	for _, peer := range all {
		if peer == d {
			continue
		}
		if r, err := d.Reach(peer); err != nil {
			to = append(to, err.Error())
		} else if r.Access {
			to = append(to, fmt.Sprintf("%d by %s", peer.Ordinal, r.Link))
		}
	}
	return strings.Join(to, ", ")
}

// checkCMA asks the kernel about this process first, which shows a seccomp filter, and Yama about others.
func checkCMA() Check {
	var word [8]byte
	at := []sys.Iovec{{Addr: sys.AddrOf(word[:]), Len: 8}}
	if _, err := sys.VMRead(os.Getpid(), at, at); err != nil {
		return Check{false, fmt.Sprintf("process_vm_readv is refused (%v): a seccomp filter or a kernel without CONFIG_CROSS_MEMORY_ATTACH", err)}
	}
	scope, err := sys.PtraceScope()
	switch {
	case err != nil:
		return Check{false, fmt.Sprintf("cannot tell: %v", err)}
	case scope == sys.PtraceClassic:
		return Check{true, "allowed between processes of one user"}
	case scope == sys.PtraceRestricted:
		return Check{true, "allowed where the target agrees, which mori does (kernel.yama.ptrace_scope is 1)"}
	case scope == sys.PtraceAdmin && os.Geteuid() == 0:
		return Check{true, "allowed for root (kernel.yama.ptrace_scope is 2)"}
	}
	return Check{false, fmt.Sprintf("kernel.yama.ptrace_scope is %d; set it to 0 or 1", scope)}
}
